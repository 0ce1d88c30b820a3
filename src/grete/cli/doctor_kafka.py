"""Checks of a job's Kafka systems: brokers, the topics of its logs, rights, timeouts, clock.

The rules are functions of facts, so that they need no broker; `kafka_findings` asks for the facts. Nothing is
written. A transactional id is opened, which the broker forgets after a week.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from grete.cli.doctor_finding import Finding
from grete.config.derived import (
    READ_COMMITTED,
    isolation_key,
    isolation_problems,
    kafka_systems_of_logs,
)
from grete.config.key_tables.task import TRANSACTION_TIMEOUT
from grete.config.settings import Settings
from grete.errors import GreteError

if TYPE_CHECKING:
    from grete.kafka.inspector import BrokerFacts, KafkaInspector, TopicFacts
    from grete.model.ids import JobId
    from grete.systems.kafka.stream_settings import KafkaStreamSettings

_WEEK_MINUTES = 7 * 24 * 60
_SKEW_S = 60.0
_NEEDED = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})


def kafka_findings(settings: Settings) -> Iterator[Finding]:
    """Every check of every Kafka system that the configuration names."""
    systems = [name for name in settings.system_names if settings.system(name).capabilities.kafka_topics]
    if not systems:
        return
    try:
        from grete.clock import SystemClock
        from grete.kafka.inspector import KafkaInspector
        from grete.systems.kafka.stream_settings import KafkaStreamSettings
    except GreteError as error:
        yield Finding("kafka", False, str(error), "install it where the job runs")
        return
    for system in systems:
        try:
            inspector = KafkaInspector(settings, system, SystemClock())
            yield from _system(settings, system, inspector, KafkaStreamSettings(settings, system))
        except GreteError as error:
            yield Finding(
                f"kafka {system}", False, str(error), f"check systems.{system}.producer.* and the brokers"
            )


def _system(
    settings: Settings, system: str, inspector: KafkaInspector, streams: KafkaStreamSettings
) -> Iterator[Finding]:
    facts = inspector.brokers()
    yield Finding(f"kafka {system}", True, f"{facts.count} brokers answer")
    timeout_s = max(inspector.transaction_timeout_s, settings.task.transaction_timeout_s)
    yield from brokers(system, facts, timeout_s)
    if system not in kafka_systems_of_logs(settings.raw):
        return
    for name, copies_key, copies in _logs(settings, system):
        topic = inspector.topic(name)
        yield from log_topic(system, name, topic, facts.count, copies_key, copies)
    for name in _changelogs(settings, system):
        topic = inspector.topic(name)
        if topic is not None:
            yield from changelog_topic(system, streams, topic)
    yield _transactions(system, settings.job.id, inspector)
    yield from _stream(settings, system, inspector)


def isolation(in_force: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the stream's configuration makes Samza's consumers of the job's logs skip aborted records."""
    wrong = {problem.partition("=")[0]: problem for problem in isolation_problems(in_force)}
    for system in kafka_systems_of_logs(in_force):
        key = isolation_key(system)
        found = wrong.get(key, f"{key}={in_force.get(key, '')} in the coordinator stream")
        if key not in in_force:
            found += ": real Samza would believe records of aborted appends"
        is_set = key in in_force and key not in wrong
        yield Finding("isolation.level", is_set, found, f"grete config set {key}={READ_COMMITTED}")


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


def _logs(settings: Settings, system: str) -> Iterator[tuple[str, str, int]]:
    """(topic, key of its copies, copies asked for) of the coordinator stream and the checkpoint log."""
    from grete.checkpoint.names import checkpoint_log_name
    from grete.kafka.settings import checkpoint_log_settings, coordinator_log_settings
    from grete.metadata.coordinator_stream import stream_name

    job, of_coordinator = settings.job.id, settings.coordinator.system
    if of_coordinator == system:
        log = coordinator_log_settings(settings, system)
        yield stream_name(job), log.replication_key, log.replication_factor
    if (settings.task.checkpoint_system or of_coordinator) == system:
        log = checkpoint_log_settings(settings, system)
        yield checkpoint_log_name(job), log.replication_key, log.replication_factor


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
    yield from _health(check, topic)
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


def _changelogs(settings: Settings, system: str) -> Iterator[str]:
    """The topic of each changelog on a system."""
    for store in map(settings.store, settings.store_names):
        if (store.changelog_system or settings.coordinator.system) == system:
            yield store.changelog_stream(settings.job.id)


def changelog_topic(system: str, streams: KafkaStreamSettings, topic: TopicFacts) -> Iterator[Finding]:
    """The topic of a changelog: its store can be rebuilt from it, and what expires goes from it."""
    check = f"changelog {system}.{topic.name}"
    yield from _health(check, topic)
    policy = topic.config.get("cleanup.policy", "not known, for want of rights")
    problem = streams.changelog_problem(topic.name, topic.config) if topic.config else None
    says = f"{topic.partitions} partitions, cleanup.policy={policy}"
    yield Finding(
        check, problem is None, says, "" if problem is None else f"it {problem.says}; {problem.way_out}"
    )


def _health(check: str, topic: TopicFacts) -> Iterator[Finding]:
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


def _transactions(system: str, job: JobId, inspector: KafkaInspector) -> Finding:
    check = f"kafka {system} transactions"
    transactional_id = f"grete-doctor-{job}"
    try:
        inspector.open_transaction(transactional_id)
    except GreteError as error:
        return Finding(check, False, str(error), "grant Write on transactional ids that begin with grete-")
    return Finding(check, True, f"{transactional_id} can be opened")


def _stream(settings: Settings, system: str, inspector: KafkaInspector) -> Iterator[Finding]:
    """The coordinator stream, when there is one: its readers' isolation level, and its writer's clock."""
    from grete.clock import SystemClock
    from grete.keyed_log.kafka_existing import ExistingLog
    from grete.metadata.coordinator_stream import GENERATION, CoordinatorStream, stream_name

    name = stream_name(settings.job.id)
    if settings.coordinator.system != system or inspector.topic(name) is None:
        return
    with closing(ExistingLog(inspector.clients(name), SystemClock())) as log:
        newest = log.newest()
        stream = CoordinatorStream(log, SystemClock(), source="doctor")
        if stream.raw(GENERATION):  # written by grete, not by Samza alone
            yield from isolation(stream.config())
    if newest is not None:
        yield clock(newest.timestamp_ms / 1000, time.time())


def clock(newest_s: float, now_s: float) -> Finding:
    """Whether this machine's clock lags behind the one of who wrote last."""
    ahead_s = newest_s - now_s
    return Finding(
        "clock",
        ahead_s < _SKEW_S,
        f"the newest record of the coordinator stream is {-ahead_s:,.0f} s old"
        if ahead_s < _SKEW_S
        else f"the newest record of the coordinator stream is from {ahead_s:,.0f} s in the future",
        "set this machine's clock, or the clock of the machine that wrote it (NTP): startpoints by time and "
        "retention go by it",
    )
