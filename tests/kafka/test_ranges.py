"""Reading exact ranges of topic partitions, whatever stands in them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from grete.clock import SystemClock
from grete.errors import OffsetOutOfRange
from grete.kafka.client import KafkaConnection
from grete.kafka.ranges import RangeReader
from grete.systems.records import batches
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually


class Topic:
    """A topic of two partitions and who writes to it."""

    def __init__(self, bootstrap: str) -> None:
        self.name = f"range-{uuid.uuid4().hex[:8]}"
        self._bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(self.name, 2, 1)])[self.name].result(30)

    def fill(self, *values: bytes, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for value in values:
            producer.produce(self.name, value, b"k", partition, timestamp=7)
        assert producer.flush(30) == 0

    def transact(self, *values: bytes, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": self.name})
        producer.init_transactions(30)
        before = self.end()
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, b"k", 0, timestamp=7)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        # brokers write the marker after they have answered: what is appended next could come before it
        eventually(lambda: self.end() == before + len(values) + 1, "the transaction's marker")

    def end(self) -> int:
        where = TopicPartition(self.name, 0)
        asked = self.admin.list_offsets({where: OffsetSpec.latest()})
        return asked[where].result(30).offset

    def delete_before(self, offset: int) -> None:
        where = TopicPartition(self.name, 0, offset)
        self.admin.delete_records([where])[where].result(30)


@pytest.fixture
def topic(kafka: KafkaCluster) -> Topic:
    return Topic(kafka.bootstrap)


@pytest.fixture
def reader(kafka: KafkaCluster) -> Iterator[RangeReader]:
    clock = SystemClock()
    made = RangeReader(KafkaConnection({"bootstrap.servers": kafka.bootstrap}, 20.0, clock), clock)
    yield made
    made.close()


def read(
    reader: RangeReader, topic: Topic, start: int, end: int, partition: int = 0
) -> list[tuple[int, bytes]]:
    return [
        (row["offset"], row["value"])
        for _, batch in batches(reader.read(topic.name, partition, start, end))
        for row in batch.to_pylist()
    ]


def test_a_range_is_read_and_nothing_beside_it(topic: Topic, reader: RangeReader) -> None:
    topic.fill(*(b"%d" % i for i in range(10)))
    assert read(reader, topic, 3, 6) == [(3, b"3"), (4, b"4"), (5, b"5")]
    assert read(reader, topic, 6, 8) == [(6, b"6"), (7, b"7")]
    assert read(reader, topic, 0, 1) == [(0, b"0")]
    assert read(reader, topic, 5, 5) == []


def test_a_range_ends_though_markers_and_aborted_records_are_its_end(
    topic: Topic, reader: RangeReader
) -> None:
    topic.transact(b"a", b"b", commit=True)  # 0, 1 and a marker
    topic.transact(b"lost", commit=False)  # 3 and a marker
    assert read(reader, topic, 0, 5) == [(0, b"a"), (1, b"b")]
    assert read(reader, topic, 2, 5) == []
    topic.fill(b"c")
    assert read(reader, topic, 0, 5) == [(0, b"a"), (1, b"b")]
    assert read(reader, topic, 5, 6) == [(5, b"c")]


def test_records_behind_the_end_are_there_for_the_next_range(topic: Topic, reader: RangeReader) -> None:
    topic.transact(b"a", commit=True)
    topic.fill(b"b", b"c")
    assert read(reader, topic, 0, 2) == [(0, b"a")]
    topic.fill(b"d")
    assert read(reader, topic, 2, 5) == [(2, b"b"), (3, b"c"), (4, b"d")]


def test_partitions_take_turns(topic: Topic, reader: RangeReader) -> None:
    for round_ in range(3):
        for partition in range(2):
            topic.fill(b"%d" % partition, partition=partition)
            assert read(reader, topic, round_, round_ + 1, partition) == [(round_, b"%d" % partition)]


def test_what_retention_deleted_is_named(topic: Topic, reader: RangeReader) -> None:
    topic.fill(b"a", b"b", b"c")
    topic.delete_before(2)
    with pytest.raises(OffsetOutOfRange, match="from 0 to before 2 are lost"):
        read(reader, topic, 0, 3)
    assert read(reader, topic, 2, 3) == [(2, b"c")]


def test_an_offset_that_never_was_is_named(topic: Topic, reader: RangeReader) -> None:
    topic.fill(b"a")
    with pytest.raises(OffsetOutOfRange, match="8 was asked for"):
        read(reader, topic, 8, 9)
