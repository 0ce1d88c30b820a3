"""A consumer group as an ordinary tool sees it: committed offsets against the ends of the topics."""

from __future__ import annotations

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from grete.testing.waiting import eventually


def group_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The group's committed offsets, by topic and partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {(found.topic, found.partition): found.offset for found in asked.result(30).topic_partitions}


def group_lag(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Records from the group's offsets to the ends."""
    offsets = group_offsets(bootstrap, group)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets({TopicPartition(*where): OffsetSpec.latest() for where in offsets})
    ends = {(where.topic, where.partition): found.result(30).offset for where, found in asked.items()}
    return {where: ends[where] - offset for where, offset in offsets.items()}


def joined(bootstrap: str, group: str, topic: str) -> Consumer:
    """A consumer that is a member of the group, and commits nothing."""
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    member.subscribe([topic])

    def has_partitions() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    eventually(has_partitions, "a member of the group has partitions")
    return member
