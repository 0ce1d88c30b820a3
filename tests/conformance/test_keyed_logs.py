"""The keyed log's contract on every back end: a few lines each buy the whole suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.keyed_log.base import KeyedLog
from grete.keyed_log.memory import MemoryKeyedLog
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file
from grete.testing.conformance.keyed_log import KeyedLogConformance


class TestMemoryKeyedLog(KeyedLogConformance):
    @pytest.fixture
    def open_log(self) -> Callable[[], KeyedLog]:
        log = MemoryKeyedLog(SystemClock())
        return lambda: log


class TestSqliteKeyedLog(KeyedLogConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], KeyedLog]:
        return lambda: SqliteKeyedLog(open_file(tmp_path / "log.db"), "log", SystemClock())
