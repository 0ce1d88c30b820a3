"""The contract of leader election on every back end: a few lines each buy the whole suite."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.coordination.base import Coordination
from grete.coordination.kafka import KafkaCoordination
from grete.coordination.memory import MemoryCoordination, MemoryLeaderships
from grete.coordination.sqlite import SqliteCoordination
from grete.kafka.settings import KafkaLogSettings
from grete.sqlite_file import open_file
from grete.testing.clock import ManualClock
from grete.testing.conformance.cells import CellsConformance
from grete.testing.conformance.coordination import CoordinationConformance
from grete.testing.conformance.recipes import RecipesConformance
from grete.testing.kafka_broker import KafkaCluster


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pass_time(clock: ManualClock) -> Callable[[float], None]:
    return clock.advance


class TestMemoryCoordination(CoordinationConformance, CellsConformance, RecipesConformance):
    @pytest.fixture
    def contender(self, clock: ManualClock) -> Callable[[], Coordination]:
        shared = MemoryLeaderships()
        return lambda: MemoryCoordination(clock, leaderships=shared, ttl_s=self.TTL_S)


class TestSqliteCoordination(CoordinationConformance, CellsConformance, RecipesConformance):
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


class TestKafkaCoordination(CoordinationConformance, CellsConformance, RecipesConformance):
    TTL_S = 180.0

    @pytest.fixture
    def contender(self, clock: ManualClock, kafka: KafkaCluster) -> Iterator[Callable[[], Coordination]]:
        settings = KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1)
        prefix = f"__grete_test_{uuid.uuid4().hex[:8]}_"
        with ExitStack() as stack:

            def open_one() -> Coordination:
                own = KafkaCoordination(settings, clock, ttl_s=self.TTL_S, topic_prefix=prefix)
                stack.callback(own.close)
                return own

            yield open_one
