"""The keyed log's contract on every back end: a few lines each buy the whole suite."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.base import KeyedLog
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.keyed_log.memory import MemoryKeyedLog
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file
from grete.testing.conformance.keyed_log import KeyedLogConformance
from grete.testing.kafka_broker import KafkaCluster


class TestMemoryKeyedLog(KeyedLogConformance):
    @pytest.fixture
    def open_log(self) -> Callable[[], KeyedLog]:
        log = MemoryKeyedLog(SystemClock())
        return lambda: log


class TestSqliteKeyedLog(KeyedLogConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], KeyedLog]:
        return lambda: SqliteKeyedLog(open_file(tmp_path / "log.db"), "log", SystemClock())


class TestKafkaKeyedLog(KeyedLogConformance):
    @pytest.fixture
    def open_log(self, kafka: KafkaCluster) -> Iterator[Callable[[], KeyedLog]]:
        settings = KafkaLogSettings(
            {"bootstrap.servers": kafka.bootstrap}, replication_factor=1, max_message_bytes=8 << 20
        )
        name = f"log-{uuid.uuid4().hex[:8]}"
        with ExitStack() as stack:

            def open_one() -> KeyedLog:
                log = KafkaKeyedLog(name, settings, SystemClock())
                stack.callback(log.close)
                return log

            yield open_one
