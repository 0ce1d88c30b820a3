"""The topic of a keyed log: made as Samza makes it (S2-107), verified each time it is opened.

One partition, since a log has one order; `cleanup.policy=compact` and nothing else, since a topic that also deletes
by age loses configuration and checkpoints that were not changed for a week.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from grete.clock import Clock, Deadline
from grete.errors import LogError, LogNotFound, LogUnreachable, UnsafeStorage
from grete.kafka.errors import describe, is_temporary, reason_of
from grete.kafka.library import KafkaException
from grete.kafka.log_clients import KafkaClients
from grete.kafka.topics import GONE, TopicSettings, create_topic, too_few_brokers, topic_config, topic_info

_log = logging.getLogger(__name__)
_PAUSES_S = (0.005, 0.5)
_ID_RETENTION_MS = 600_000
"""Compaction leaves what is younger: an append that is in doubt is resolved or tried again within minutes."""


@dataclass(frozen=True, slots=True)
class LogTopic:
    """A verified topic. `id` changes when it is deleted and recreated."""

    id: str
    max_message_bytes: int


def find_or_create(clients: KafkaClients, clock: Clock, *, must_exist: bool = False) -> LogTopic:
    """The topic, made when it is not there. Another process making it at the same time is success.

    Raises:
        LogNotFound: it must exist, and the brokers say that it does not.
        UnsafeStorage: it has another clean-up policy, or more than one partition.
        LoginRefused: the brokers do not let us in.
        LogError: brokers too few for its copies, or no answer in time.
    """
    clients.log_in()
    deadline = Deadline(clock, clients.timeout_s, pauses_s=_PAUSES_S)
    while True:
        try:
            topic = find(clients)
            if topic is not None:
                return topic
            if must_exist:
                raise LogNotFound(f"there is no topic {clients.topic} on {clients.servers}")
            _create(clients)
        except KafkaException as error:
            reason = reason_of(error)
            if not (is_temporary(reason) and deadline.pause()):
                kind = LogUnreachable if is_temporary(reason) else LogError
                raise kind(f"opening topic {clients.topic}: {describe(reason)}") from error
        else:
            if not deadline.pause():
                raise LogError(f"topic {clients.topic} was made and did not become readable in time")


def _create(clients: KafkaClients) -> None:
    settings = clients.settings
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(settings.segment_bytes),
        "max.message.bytes": str(settings.max_message_bytes),
        "min.compaction.lag.ms": str(_ID_RETENTION_MS),
    }
    if settings.replication_factor >= 3:
        config["min.insync.replicas"] = "2"  # acknowledged means on two disks, and one broker may be away
    new = TopicSettings(settings.replication_factor, settings.replication_key, config)
    try:
        if create_topic(clients, clients.topic, 1, new):
            _log.info("made topic %s with %d copies", clients.topic, new.copies)
    except KafkaException as error:
        refusal = too_few_brokers(error, clients.topic, new)
        if refusal is None:
            raise
        raise LogError(refusal) from error


def find(clients: KafkaClients) -> LogTopic | None:
    """The topic as it is, verified; None when it is not there.

    Raises:
        UnsafeStorage: it cannot keep a log.
        KafkaException: no answer, or not yet.
    """
    try:
        found = topic_info(clients, clients.topic)
        config = topic_config(clients, clients.topic)  # by another node, which may have a new topic later
    except KafkaException as error:
        if reason_of(error).code() in GONE:
            return None
        raise
    if found.partitions != 1:
        raise UnsafeStorage(
            f"topic {clients.topic} has {found.partitions} partitions: a log has one order, so it needs exactly "
            "one partition. Partitions cannot be taken away; copy what it holds into a new topic with one"
        )
    policy = config["cleanup.policy"]
    if {word.strip() for word in policy.split(",")} != {"compact"}:
        raise UnsafeStorage(
            f"topic {clients.topic} has cleanup.policy={policy}: records that are not rewritten would be deleted by "
            f"age. Set it to compact alone: kafka-configs --alter --entity-type topics --entity-name {clients.topic} "
            "--add-config cleanup.policy=compact"
        )
    return LogTopic(found.id, int(config["max.message.bytes"]))


def find_again(clients: KafkaClients, known: LogTopic) -> LogTopic | None:
    """As `find`; `known` without an answer, which says nothing about the topic."""
    try:
        return find(clients)
    except KafkaException:
        return known
