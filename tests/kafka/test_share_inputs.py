"""The input of a share on brokers: one consumer, whose partitions do not stand before each other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.base import SystemContext
from grete.systems.inputs import Span
from grete.systems.kafka.inputs import _KEPT, KafkaInputs
from grete.systems.kafka.system import KafkaSystem, open_kafka_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

BACKLOG = 30_000
SIZE = 1_000


class Reader:
    """Reads all partitions of a topic, and remembers the offsets that it was given of each."""

    def __init__(self, system: KafkaSystem, topic: str, partitions: int) -> None:
        self.inputs: KafkaInputs = system.inputs(SystemClock())
        self._ssps = [SystemStreamPartition("kafka", topic, p) for p in range(partitions)]
        self._next = dict.fromkeys(self._ssps, 0)
        self.given: list[list[int]] = [[] for _ in range(partitions)]

    def poll(self, records: int) -> None:
        wanted = {ssp: Span(offset) for ssp, offset in self._next.items()}
        found = self.inputs.poll(wanted, records, 0.05)
        assert sum(one.records.num_rows for one in found if one.records is not None) <= records
        for one in found:
            self._next[one.ssp] = one.next_offset
            if one.records is not None:
                self.given[one.ssp.partition] += one.records.column(3).to_pylist()

    def has_more_of_others(self, count: int) -> bool:
        """Whether more have come of other partitions than the first, after another poll."""
        self.poll(10)
        return sum(map(len, self.given[1:])) > count

    @property
    def kept(self) -> tuple[int, int]:
        """Messages and bytes that are fetched and not given."""
        messages = [message for one in self.inputs._kept.values() for message in one.messages]
        return len(messages), sum(map(len, messages))


@pytest.fixture
def system(kafka: KafkaCluster) -> Iterator[KafkaSystem]:
    config = {
        "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
        "systems.kafka.default.stream.replication.factor": "1",
    }
    with closing(
        open_kafka_system(SystemContext(Settings.of(config), "kafka", Path(), SystemClock()))
    ) as opened:
        yield opened


@pytest.fixture
def topic(system: KafkaSystem) -> str:
    name = f"in-{uuid.uuid4().hex[:8]}"
    system.create_stream(StreamSpec(name, 3))
    return name


def fill(kafka: KafkaCluster, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20})
    for number in range(count):
        producer.produce(topic, b"%0*d" % (SIZE, number), None, partition)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def test_a_backlog_that_is_taken_slowly_does_not_stand_before_other_partitions_and_is_read_whole(
    kafka: KafkaCluster, system: KafkaSystem, topic: str
) -> None:
    fill(kafka, topic, 0, BACKLOG)
    reader = Reader(system, topic, 3)
    with closing(reader.inputs):
        eventually(lambda: (reader.poll(10), reader.given[0])[1], "the backlog's first records")
        for number in range(5):
            fill(kafka, topic, 1 + number % 2, 1)
            before = len(reader.given[0])
            eventually(partial(reader.has_more_of_others, number), "the neighbour's record")
            assert len(reader.given[0]) - before < 1_000, "a moment's worth, not what was fetched of it"
        eventually(lambda: (reader.poll(500), len(reader.given[0]) == BACKLOG)[1], "the end of the backlog")
    assert reader.given == [list(range(BACKLOG)), [0, 1, 2], [0, 1]]


def test_a_poll_waits_for_records_though_the_client_says_meanwhile_where_partitions_end(
    kafka: KafkaCluster, system: KafkaSystem, topic: str
) -> None:
    """It ended at once with nothing, as if its wait were over."""
    ssps = [SystemStreamPartition("kafka", topic, p) for p in range(3)]
    later = threading.Timer(0.5, fill, (kafka, topic, 1, 1))
    with closing(system.inputs(SystemClock())) as inputs:
        later.start()
        found = inputs.poll(dict.fromkeys(ssps, Span(0)), 10, patient(20))
        later.join()
    assert [(one.ssp.partition, one.next_offset) for one in found] == [(1, 1)]


def test_what_is_fetched_and_not_taken_is_bounded(
    kafka: KafkaCluster, system: KafkaSystem, topic: str
) -> None:
    for partition in range(2):
        fill(kafka, topic, partition, BACKLOG)
    reader = Reader(system, topic, 3)
    most = (0, 0)
    with closing(reader.inputs):
        for _ in range(300):
            reader.poll(20)
            most = max(most[0], reader.kept[0]), max(most[1], reader.kept[1])
    queue = 8 << 20
    assert SIZE * 1_000 < most[1] < _KEPT[1] + 2 * queue, most


def test_few_records_at_a_time_go_to_each_partition_in_turn(
    kafka: KafkaCluster, system: KafkaSystem, topic: str
) -> None:
    fill(kafka, topic, 0, 500)
    fill(kafka, topic, 2, 20)
    reader = Reader(system, topic, 3)
    with closing(reader.inputs):
        eventually(lambda: (reader.poll(1), len(reader.given[2]) == 20)[1], "the smaller one")
        assert len(reader.given[0]) < 100
