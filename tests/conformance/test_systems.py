"""The contract of systems on every back end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from grete.clock import SystemClock
from grete.keyed_log.base import KeyedLog
from grete.systems.base import SegmentWrite, System, SystemAdmin, SystemContext
from grete.systems.kafka import KafkaSystem, open_kafka_system
from grete.systems.local import LocalSystem, Message
from grete.systems.local_segments import pack
from grete.testing.conformance.system import Records, TransactionalStoreConformance
from grete.testing.kafka_broker import KafkaCluster


class Local:
    name = "local"

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack

    def _open(self) -> LocalSystem:
        system = LocalSystem(self._directory, SystemClock())
        self._stack.callback(system.close)
        return system

    def admin(self) -> SystemAdmin:
        return self._open()

    def store(self) -> System:
        return self._open()

    def append(self, stream: str, partition: int, records: Records) -> None:
        self._open().append(stream, (Message(key, value, 0, partition) for key, value in records))

    def read(self, stream: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        return [
            pair
            for _, batch in self._open().read(stream, partition, 0)
            for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        ]

    def checkpoint_log(self, name: str) -> KeyedLog:
        return self._open().checkpoint_log(name)

    def segment(self, stream: str, partition: int, records: Records) -> SegmentWrite:
        keys, values = zip(*records, strict=True)
        return SegmentWrite(stream, partition, len(records), pack(keys, values, [0] * len(records)))


class TestLocalSystem(TransactionalStoreConformance):
    @pytest.fixture
    def back_end(self, tmp_path: Path) -> Iterator[Local]:
        with ExitStack() as stack:
            yield Local(tmp_path, stack)


class Kafka:
    name = "kafka"

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        self._stack = stack
        self._bootstrap = bootstrap
        self._reader = self._open()

    def _open(self) -> KafkaSystem:
        config = {
            "systems.kafka.producer.bootstrap.servers": self._bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
            "task.commit.groups": "1",
        }
        system = open_kafka_system(SystemContext(config, self.name, Path(), SystemClock()))
        self._stack.callback(system.close)
        return system

    def admin(self) -> SystemAdmin:
        return self._open()

    def store(self) -> System:
        return self._open()

    def append(self, stream: str, partition: int, records: Records) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for key, value in records:
            producer.produce(stream, value, key, partition)
        assert producer.flush(30) == 0

    def read(self, stream: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        return [
            pair
            for _, batch in self._reader.read(stream, partition, 0)
            for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        ]

    def checkpoint_log(self, name: str) -> KeyedLog:
        return self._reader.checkpoint_log(name)

    def segment(self, stream: str, partition: int, records: Records) -> SegmentWrite:
        keys, values = zip(*records, strict=True)
        return SegmentWrite(stream, partition, len(records), pack(keys, values, [1] * len(records)))


class TestKafkaSystem(TransactionalStoreConformance):
    @pytest.fixture
    def back_end(self, kafka: KafkaCluster) -> Iterator[Kafka]:
        with ExitStack() as stack:
            yield Kafka(kafka.bootstrap, stack)
