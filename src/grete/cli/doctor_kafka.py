"""Checks of a job's Kafka systems: asks for facts, and lets `kafka.probe` and `systems.kafka.probe` judge them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from grete.config.derived import (
    READ_COMMITTED,
    isolation_key,
    isolation_problems,
    kafka_systems_of_logs,
)
from grete.config.settings import Settings
from grete.errors import GreteError
from grete.finding import Finding
from grete.kafka.probe import brokers, log_topic, transactions
from grete.systems.kafka.probe import changelog_topic

if TYPE_CHECKING:
    from grete.kafka.inspector import KafkaInspector
    from grete.systems.kafka.stream_settings import KafkaStreamSettings

_SKEW_S = 60.0


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
    yield transactions(system, settings.job.id, inspector)
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


def _changelogs(settings: Settings, system: str) -> Iterator[str]:
    """The topic of each changelog on a system."""
    for store in map(settings.store, settings.store_names):
        if (store.changelog_system or settings.coordinator.system) == system:
            yield store.changelog_stream(settings.job.id)


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
