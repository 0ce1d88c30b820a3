"""All that a reader of what is committed finds in a topic now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from grete.testing.waiting import patient


class TopicRecord(NamedTuple):
    """One record."""

    partition: int
    key: bytes | None
    value: bytes | None


def consumer_of(bootstrap: str, topic: str, partitions: int) -> Consumer:
    """A consumer of all partitions from their beginning, which says where each ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return consumer


def topic_records(bootstrap: str, topic: str, partitions: int) -> Iterator[TopicRecord]:
    """Partition by partition as they come, up to the end of each."""
    ended = 0
    with closing(consumer_of(bootstrap, topic, partitions)) as consumer:
        while ended < partitions:
            message = consumer.poll(patient(30))
            assert message is not None, f"{topic} has no end"
            if message.error() is not None:
                ended += 1
                continue
            yield TopicRecord(message.partition() or 0, message.key(), message.value())
