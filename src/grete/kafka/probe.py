"""Checks of brokers and of the topics of logs: rules over facts, so that they need no broker.

Nothing is written. A transactional id is opened, which the broker forgets after a week.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grete.config.key_tables.task import TRANSACTION_TIMEOUT
from grete.errors import GreteError
from grete.finding import Finding

if TYPE_CHECKING:
    from grete.kafka.inspector import BrokerFacts, KafkaInspector, TopicFacts
    from grete.model.ids import JobId


_WEEK_MINUTES = 7 * 24 * 60
_NEEDED = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})


def brokers(system: str, facts: BrokerFacts, transaction_timeout_s: float) -> Iterator[Finding]:
    """Whether the brokers' settings allow our transactions, and how long they remember fences."""
    if not facts.settings:
        yield Finding(
            f"kafka {system} settings",
            True,
            "not looked at: the user lacks DescribeConfigs on the cluster, so timeouts are not checked",
        )
        return
    most_ms = int(facts.settings.get("transaction.max.timeout.ms", "900000"))
    if most_ms < transaction_timeout_s * 1000:
        yield Finding(
            f"kafka {system} transactions",
            False,
            f"transaction.max.timeout.ms={most_ms}, and grete's transactions ask for {transaction_timeout_s:.0f} s",
            f"set transaction.max.timeout.ms of the brokers to {round(transaction_timeout_s * 1000)} or more, or "
            f"lower {TRANSACTION_TIMEOUT.name}",
        )
    for name, unit, scale in (
        ("offsets.retention.minutes", "minutes", 1),
        ("transactional.id.expiration.ms", "ms", 60_000),
    ):
        value = int(facts.settings.get(name, str(_WEEK_MINUTES * scale)))
        yield Finding(
            f"kafka {system} {name}",
            value >= _WEEK_MINUTES * scale,
            f"{value:,} {unit}: brokers forget the fence of a job that stood still for so long",
            f"set {name} of the brokers to {_WEEK_MINUTES * scale} (a week) or more",
        )


def log_topic(
    system: str, name: str, topic: TopicFacts | None, brokers: int, copies_key: str, copies: int
) -> Iterator[Finding]:
    """The topic of a keyed log: one partition, compacted only, enough copies; or whether it can be made."""
    check = f"topic {system}.{name}"
    if topic is None:
        yield Finding(
            check,
            copies <= brokers,
            f"not there yet, and will be made with {copies} copies on {brokers} brokers",
            f"start more brokers, or set {copies_key} to {brokers} or less",
        )
        return
    yield from topic_health(check, topic)
    policy = topic.config.get("cleanup.policy", "compact")
    yield Finding(
        check,
        topic.partitions == 1,
        f"{topic.partitions} partitions",
        "a log has one order, so it needs one partition: copy what it holds into a new topic with one",
    )
    yield Finding(
        check,
        policy == "compact",
        f"cleanup.policy={policy}",
        f"records that are not rewritten would be deleted by age: kafka-configs --alter --entity-type topics "
        f"--entity-name {name} --add-config cleanup.policy=compact",
    )


def topic_health(check: str, topic: TopicFacts) -> Iterator[Finding]:
    """Leaders, copies in step and rights of any topic."""
    least = int(topic.config.get("min.insync.replicas", "1"))
    if topic.leaderless:
        found = f"{topic.leaderless} partitions have no leader"
        yield Finding(check, False, found, "start the brokers that hold them")
    yield Finding(
        check,
        topic.in_sync >= least,
        f"{topic.copies} copies, {topic.in_sync} in step, min.insync.replicas={least}",
        "nothing can be written until more copies are in step: start their brokers"
        if topic.copies >= least
        else f"nothing can be written with fewer copies than that: lower min.insync.replicas to {topic.copies}",
    )
    missing = _NEEDED - topic.rights if topic.rights else frozenset()
    yield Finding(
        check,
        not missing,
        f"rights: {', '.join(sorted(topic.rights)) or 'the brokers do not say'}",
        f"grant {', '.join(sorted(missing))} on the topic",
    )


def transactions(system: str, job: JobId, inspector: KafkaInspector) -> Finding:
    """Whether a transactional id of grete's can be opened."""
    check = f"kafka {system} transactions"
    transactional_id = f"grete-doctor-{job}"
    try:
        inspector.open_transaction(transactional_id)
    except GreteError as error:
        return Finding(check, False, str(error), "grant Write on transactional ids that begin with grete-")
    return Finding(check, True, f"{transactional_id} can be opened")
