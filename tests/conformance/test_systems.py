"""The contract of systems on every back end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.secure_kafka import SecureCluster

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.keyed_log.base import KeyedLog
from grete.model.streams import StreamSpec
from grete.systems.admin import SystemAdmin
from grete.systems.base import System, SystemContext
from grete.systems.commit_group import SegmentWrite
from grete.systems.eventhubs.system import EventHubsSystem
from grete.systems.kafka.system import open_kafka_system
from grete.systems.local.system import LocalSystem, Message
from grete.systems.records import pack
from grete.testing.conformance.system import Records, SystemAdminConformance
from grete.testing.conformance.transactions import TransactionsConformance
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient


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


class TestLocalSystem(TransactionsConformance):
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

    def _open(self) -> System:
        config = {
            "systems.kafka.producer.bootstrap.servers": self._bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
            "task.commit.groups": "2",
        }
        system = open_kafka_system(SystemContext(Settings.of(config), self.name, Path(), SystemClock()))
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


class TestKafkaSystem(TransactionsConformance):
    @pytest.fixture
    def back_end(self, kafka: KafkaCluster) -> Iterator[Kafka]:
        with ExitStack() as stack:
            yield Kafka(kafka.bootstrap, stack)


class HubsAndTheirTools(EventHubsSystem):
    """Hubs, and what makes them: Azure's tools in production, the broker's here."""

    def __init__(self, context: SystemContext, tools: AdminClient) -> None:
        super().__init__(context)
        self._tools = tools

    def create_stream(self, spec: StreamSpec) -> None:
        made = self._tools.create_topics([NewTopic(spec.stream, spec.partitions, 1)])[spec.stream]
        if made.exception(30) is None:
            while self._tools.list_topics(timeout=patient(30)).topics.get(spec.stream) is None:
                pass
        super().create_stream(spec)


class EventHubs(Kafka):
    name = "hubs"

    def __init__(self, cluster: SecureCluster, stack: ExitStack, home: Path) -> None:
        self._cluster = cluster
        self._home = home
        super().__init__(cluster.bootstrap, stack)

    def _open(self) -> HubsAndTheirTools:
        password = self._cluster.login.users["$ConnectionString"]
        config = {
            "systems.hubs.samza.factory": "eventhubs",
            "systems.hubs.producer.bootstrap.servers": self._cluster.secure_bootstrap,
            "systems.hubs.producer.security.protocol": "SASL_SSL",
            "systems.hubs.producer.sasl.mechanism": "PLAIN",
            "systems.hubs.producer.sasl.jaas.config": f"M username='$ConnectionString' password='{password}';",
            "systems.hubs.producer.ssl.truststore.location": str(self._cluster.login.authority.ca_pem),
            "systems.hubs.producer.ssl.truststore.type": "PEM",
            **{f"streams.{name}.samza.system": "hubs" for name in ("in", "a.b")},
            "task.inputs": "hubs.any",
            "task.checkpoint.system": "local",
        }
        tools = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        system = HubsAndTheirTools(
            SystemContext(Settings.of(config), self.name, self._home, SystemClock()), tools
        )
        self._stack.callback(system.close)
        return system


class TestEventHubsSystem(SystemAdminConformance):
    """Its commits are no transactions, so that part of the contract is not promised."""

    @pytest.fixture
    def back_end(self, secure_kafka: SecureCluster, tmp_path: Path) -> Iterator[EventHubs]:
        with ExitStack() as stack:
            yield EventHubs(secure_kafka, stack, tmp_path)
