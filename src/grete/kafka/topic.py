"""The topic of a keyed log: made as Samza makes it (S2-107), verified each time it is opened.

One partition, since a log has one order; `cleanup.policy=compact` and nothing else, since a topic that also deletes
by age loses configuration and checkpoints that nobody has changed for a week.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from grete.clock import Clock
from grete.errors import LogError, LogNotFound, LogUnreachable, UnsafeStorage
from grete.kafka.errors import describe, done, is_temporary, reason_of, translated
from grete.kafka.library import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    KafkaError,
    KafkaException,
    NewTopic,
    ResourceType,
)
from grete.kafka.log_clients import KafkaClients
from grete.kafka.topics import GONE, topic_config, topic_info

_log = logging.getLogger(__name__)
_RETRY_S = 0.5
_ID_RETENTION_MS = 600_000
"""Compaction leaves what is younger: an append that is in doubt is resolved or tried again within minutes."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A verified topic. `id` changes when it is deleted and made anew."""

    id: str
    max_message_bytes: int


def find_or_create(clients: KafkaClients, clock: Clock, *, must_exist: bool = False) -> Topic:
    """The topic, made when it is not there. Somebody else making it at the same time is success.

    Raises:
        LogNotFound: it must exist, and the brokers say that it does not.
        UnsafeStorage: it has another clean-up policy, or more than one partition.
        LoginRefused: the brokers do not let us in.
        LogError: brokers too few for its copies, or no answer in time.
    """
    clients.log_in()
    deadline_s = clock.monotonic_s() + clients.settings.timeout_s
    never = threading.Event()
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
            _refuse_too_few_brokers(clients, reason)
            if clock.monotonic_s() >= deadline_s or not is_temporary(reason):
                kind = LogUnreachable if is_temporary(reason) else LogError
                raise kind(f"opening topic {clients.topic}: {describe(reason)}") from error
        if clock.monotonic_s() >= deadline_s:
            raise LogError(f"topic {clients.topic} was made and did not become readable in time")
        clock.wait(never, _RETRY_S if topic_is_slow(clients) else 0.02)


def topic_is_slow(clients: KafkaClients) -> bool:
    """Whether the cluster does not even know of the topic yet."""
    try:
        return clients.topic not in clients.admin.list_topics(timeout=_RETRY_S).topics
    except KafkaException:
        return True


def _refuse_too_few_brokers(clients: KafkaClients, reason: KafkaError) -> None:
    if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        settings = clients.settings
        raise LogError(
            f"topic {clients.topic} cannot have {settings.replication_factor} copies: {reason.str()} Start more "
            f"brokers, or set {settings.replication_key} to how many there are"
        )


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
    new = NewTopic(clients.topic, 1, settings.replication_factor, config=config)
    try:
        done(clients.admin.create_topics([new], request_timeout=settings.timeout_s)[clients.topic], 60)
    except KafkaException as error:
        if reason_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        _log.info("made topic %s with %d copies", clients.topic, settings.replication_factor)


def find(clients: KafkaClients) -> Topic | None:
    """The topic as it is, verified; None when it is not there.

    Raises:
        UnsafeStorage: it cannot keep a log.
        KafkaException: no answer, or not yet.
    """
    try:
        found = topic_info(clients, clients.topic)
        config = topic_config(
            clients, clients.topic
        )  # answered by another node, which may hear of a new topic later
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
            f"topic {clients.topic} has cleanup.policy={policy}: records that nobody rewrites would be deleted by "
            f"age. Set it to compact alone: kafka-configs --alter --entity-type topics --entity-name {clients.topic} "
            "--add-config cleanup.policy=compact"
        )
    return Topic(found.id, int(config["max.message.bytes"]))


def find_again(clients: KafkaClients, known: Topic) -> Topic | None:
    """As `find`; `known` without an answer, which says nothing about the topic."""
    try:
        return find(clients)
    except KafkaException:
        return known


def alter_config(clients: KafkaClients, changes: dict[str, str | None]) -> None:
    """Set keys of the topic's configuration; None goes back to the cluster's.

    Raises:
        LogError: refused, or no answer.
    """
    entries = [
        ConfigEntry(
            name,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, clients.topic, incremental_configs=entries)
    with translated(f"altering the configuration of topic {clients.topic}"):
        futures = clients.admin.incremental_alter_configs(
            [resource], request_timeout=clients.settings.timeout_s
        )
        done(futures[resource], clients.settings.timeout_s + 1)
