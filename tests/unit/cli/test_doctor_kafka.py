"""The doctor's findings on a Kafka system, from facts about it: each finding names what, where and the way out."""

from __future__ import annotations

import pytest

from grete.cli.doctor_kafka import clock, isolation
from grete.config.settings import Settings
from grete.finding import Finding
from grete.kafka.inspector import BrokerFacts, TopicFacts
from grete.kafka.probe import brokers, log_topic
from grete.spark.probe import connector
from grete.systems.kafka.probe import changelog_topic
from grete.systems.kafka.stream_settings import KafkaStreamSettings

ALL = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE"})
LOG = "__samza_coordinator_views_1"
KEY = "systems.kafka.consumer.isolation.level"


def topic(
    partitions: int = 1,
    copies: int = 3,
    in_sync: int = 3,
    leaderless: int = 0,
    rights: frozenset[str] = ALL,
    **config: str,
) -> TopicFacts:
    settings = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    settings |= {name.replace("_", "."): value for name, value in config.items()}
    return TopicFacts(LOG, partitions, copies, in_sync, leaderless, rights, settings)


def failed(findings: list[Finding]) -> str:
    return "\n".join(f"{f.check}: {f.found}: {f.way_out}" for f in findings if not f.ok)


def of_log(facts: TopicFacts | None, there: int = 3) -> str:
    return failed(list(log_topic("kafka", LOG, facts, there, "job.coordinator.replication.factor", 3)))


def test_a_healthy_topic_is_fine() -> None:
    assert of_log(topic()) == ""


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (topic(partitions=2), "copy what it holds into a new topic with one"),
        (topic(cleanup_policy="compact,delete"), f"--entity-name {LOG} --add-config cleanup.policy=compact"),
        (topic(in_sync=1), "1 in step, min.insync.replicas=2: nothing can be written"),
        (topic(copies=1, in_sync=1), "lower min.insync.replicas to 1"),
        (topic(leaderless=1), "start the brokers that hold them"),
        (topic(rights=frozenset({"READ", "DESCRIBE"})), "grant DESCRIBE_CONFIGS, WRITE on the topic"),
    ],
)
def test_a_topic_that_cannot_keep_a_log(facts: TopicFacts, says: str) -> None:
    found = of_log(facts)
    assert says in found
    assert f"topic kafka.{LOG}" in found


def test_a_topic_that_is_not_there_is_judged_by_the_brokers_it_needs() -> None:
    assert of_log(None) == ""
    assert "set job.coordinator.replication.factor to 1 or less" in of_log(None, there=1)


def test_a_changelog_may_have_many_partitions_and_must_be_compacted() -> None:
    streams = KafkaStreamSettings(Settings(), "kafka")
    assert failed(list(changelog_topic("kafka", streams, topic(partitions=8)))) == ""
    found = failed(list(changelog_topic("kafka", streams, topic(cleanup_policy="delete"))))
    assert "state that does not change would be deleted by age" in found


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"offsets.retention.minutes": "1440"}, "offsets.retention.minutes of the brokers to 10080"),
        ({"transactional.id.expiration.ms": "3600000"}, "transactional.id.expiration.ms of the brokers"),
        ({"transaction.max.timeout.ms": "5000"}, "set transaction.max.timeout.ms of the brokers to 10000"),
    ],
)
def test_brokers_that_forget_fences_or_end_transactions_too_soon(settings: dict[str, str], says: str) -> None:
    assert says in failed(list(brokers("kafka", BrokerFacts(3, settings), 10.0)))


def test_brokers_with_kafkas_defaults_are_fine_and_unknown_settings_are_said() -> None:
    defaults = {"offsets.retention.minutes": "10080", "transaction.max.timeout.ms": "900000"}
    assert failed(list(brokers("kafka", BrokerFacts(3, defaults), 10.0))) == ""
    (finding,) = brokers("kafka", BrokerFacts(3, {}), 10.0)
    assert finding.ok
    assert "not looked at" in finding.found


@pytest.mark.parametrize(
    ("level", "ok"), [("read_committed", True), ("read_uncommitted", False), (None, False)]
)
def test_readers_of_the_stream_have_to_skip_aborted_records(level: str | None, ok: bool) -> None:
    config = {"systems.kafka.samza.factory": "kafka", **({} if level is None else {KEY: level})}
    (finding,) = isolation(config)
    assert finding.ok is ok
    assert KEY in finding.found
    assert finding.way_out == f"grete config set {KEY}=read_committed"


def test_a_clock_behind_that_of_the_last_writer() -> None:
    assert clock(1_000.0, 1_030.0).ok
    assert not clock(1_100.0, 1_000.0).ok


@pytest.mark.parametrize(
    ("version", "ok"), [("2.13:4.2.0", True), ("2.13:3.5.1", False), ("2.12:4.2.0", False)]
)
def test_the_connector_is_of_sparks_version(version: str, ok: bool) -> None:
    packages = f"a:b:1,org.apache.spark:spark-sql-kafka-0-10_{version}"
    (finding,) = connector(Settings.of({"spark.jars.packages": packages}).spark)
    assert finding.ok is ok
    assert finding.way_out.endswith("spark-sql-kafka-0-10_2.13:4.2.0")
