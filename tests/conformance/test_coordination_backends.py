"""The contract of leader election on every back end: a few lines each buy the whole suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.coordination.base import Coordination
from grete.coordination.memory import MemoryCoordination, MemoryLeaderships
from grete.coordination.sqlite import SqliteCoordination
from grete.sqlite_file import open_file
from grete.testing.clock import ManualClock
from grete.testing.conformance.coordination import CoordinationConformance


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pass_time(clock: ManualClock) -> Callable[[float], None]:
    return clock.advance


class TestMemoryCoordination(CoordinationConformance):
    @pytest.fixture
    def contender(self, clock: ManualClock) -> Callable[[], Coordination]:
        shared = MemoryLeaderships()
        return lambda: MemoryCoordination(clock, leaderships=shared, ttl_s=self.TTL_S)


class TestSqliteCoordination(CoordinationConformance):
    @pytest.fixture
    def contender(self, clock: ManualClock, tmp_path: Path) -> Iterator[Callable[[], Coordination]]:
        with ExitStack() as stack:

            def open_one() -> Coordination:
                file = open_file(tmp_path / "coordination.db")
                stack.callback(file.close)
                own = SqliteCoordination(file, tmp_path / "locks", clock, ttl_s=self.TTL_S)
                stack.callback(own.close)
                return own

            yield open_one
