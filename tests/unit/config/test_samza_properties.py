"""Configurations as Samza's users have them: every name of Samza's for what grete has is accepted as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.config import aliases
from grete.config.derived import with_derived_keys
from grete.config.keys import find_key
from grete.config.load import load
from grete.config.rewriters import apply_rewriters
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.serdes import load_serde

KAFKA = "org.apache.samza.system.kafka.KafkaSystemFactory"
SERDES = "org.apache.samza.serializers."
JOB = {
    "app.name": "views",
    "task.class": "views:Count",
    "task.inputs": "kafka.page-views",
    "job.default.system": "kafka",
    "systems.kafka.samza.factory": KAFKA,
    "systems.kafka.consumer.zookeeper.connect": "zk:2181",
    "systems.kafka.producer.bootstrap.servers": "broker:9092",
}
ISOLATION = "systems.kafka.consumer.isolation.level"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("task.checkpoint.factory", "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory"),
        ("job.factory.class", "org.apache.samza.job.yarn.YarnJobFactory"),
        ("job.factory.class", "org.apache.samza.job.local.ThreadJobFactory"),
        ("job.factory.class", "org.apache.samza.job.local.ProcessJobFactory"),
        ("stores.s.factory", "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory"),
        ("stores.s.factory", "org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory"),
        (
            "job.systemstreampartition.grouper.factory",
            "org.apache.samza.container.grouper.stream.GroupBySystemStreamPartitionFactory",
        ),
        (
            "job.systemstreampartition.grouper.factory",
            "org.apache.samza.container.grouper.stream.AllSspToSingleTaskGrouperFactory",
        ),
        (
            "task.name.grouper.factory",
            "org.apache.samza.container.grouper.task.GroupByContainerIdsFactory",
        ),
        ("metrics.reporter.jmx.class", "org.apache.samza.metrics.reporter.JmxReporterFactory"),
        ("metrics.reporter.s.class", "org.apache.samza.metrics.reporter.MetricsSnapshotReporterFactory"),
        ("metrics.reporter.l.class", "org.apache.samza.metrics.reporter.LoggingMetricsReporterFactory"),
        ("serializers.registry.x.class", f"{SERDES}StringSerdeFactory"),
        ("task.chooser.class", "org.apache.samza.system.chooser.RoundRobinChooserFactory"),
        ("job.security.manager.factory", "org.apache.samza.job.yarn.SamzaYarnSecurityManagerFactory"),
    ],
)
def test_samzas_class_names_are_accepted(key: str, value: str) -> None:
    assert [e for e in check(with_derived_keys({**JOB, key: value})).errors if key in e] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ByteBuffer", b"x"),
        ("Byte", b"x"),
        ("String", "x"),
        ("Json", [1]),
        ("JsonSerdeV2", [1]),
        ("Integer", 1),
        ("Long", 1),
        ("Double", 0.5),
    ],
)
def test_samzas_serde_factories_are_found_by_class(name: str, value: object) -> None:
    factory = f"{SERDES}{name.removesuffix('SerdeV2')}Serde{'V2' * name.endswith('V2')}Factory"
    serde = load_serde("x", Settings.of({"serializers.registry.x.class": factory}), used_by="test")
    assert serde.from_bytes(serde.to_bytes(value)) == value


@pytest.mark.parametrize("name", ["byte", "bytebuffer", "integer", "json", "long", "string", "double"])
def test_samzas_predefined_serdes_need_no_registration(name: str) -> None:
    assert [
        e
        for e in check(with_derived_keys({**JOB, "systems.kafka.samza.msg.serde": name})).errors
        if name in e
    ] == []


def test_a_serde_of_java_objects_is_refused() -> None:
    config = {**JOB, "systems.kafka.samza.msg.serde": "serializable"}
    assert any("no serde of that name" in error for error in check(config).errors)


def test_each_of_samzas_names_stands_for_one_thing() -> None:
    for names in aliases.ALIASES.values():
        every = [other for others in names.values() for other in others]
        assert len(every) == len(set(every))


def test_app_name_and_id_are_the_jobs_as_in_samzas_planner(tmp_path: Path) -> None:
    path = tmp_path / "job.properties"
    path.write_text("app.name=new\napp.id=7\njob.name=old\n")
    assert {k: v for k, v in load([str(path)], {}).items() if k.startswith("job.")} == {
        "job.name": "new",
        "job.id": "7",
    }


def test_a_topic_pattern_of_samza_chooses_inputs() -> None:
    rewriter = "job.config.rewriter.views."
    config = {
        "job.name": "views",
        "job.config.rewriters": "views",
        rewriter + "class": "org.apache.samza.config.RegExTopicGenerator",
        rewriter + "regex": "page-views-.*",
        rewriter + "system": "kafka",
        rewriter + "config.samza.msg.serde": "json",
    }
    rewritten = apply_rewriters(config, list_streams=lambda system, _: ["page-views-eu", "clicks"])
    assert rewritten["task.inputs"] == "kafka.page-views-eu"
    assert rewritten["systems.kafka.streams.page-views-eu.samza.msg.serde"] == "json"


def test_samzas_readers_have_to_skip_aborted_records() -> None:
    assert with_derived_keys(JOB)[ISOLATION] == "read_committed"
    assert ISOLATION not in with_derived_keys({**JOB, "systems.kafka.samza.factory": "local"})


def test_every_kafka_system_that_holds_a_log_of_the_job_gets_it_and_no_other() -> None:
    systems = {f"systems.{name}.samza.factory": KAFKA for name in ("a", "b", "c", "d")}
    stores = {"stores.s.factory": "grete.store.sqlite", "stores.s.changelog": "c.changes"}
    config = {**systems, **stores, "job.coordinator.system": "a", "task.checkpoint.system": "b"}
    added = with_derived_keys(config).keys() - config.keys()
    assert added == {f"systems.{name}.consumer.isolation.level" for name in ("a", "b", "c")}


def test_another_isolation_level_is_kept_with_a_warning() -> None:
    config = with_derived_keys({**JOB, ISOLATION: "read_uncommitted"})
    assert config[ISOLATION] == "read_uncommitted"
    assert any(ISOLATION in warning and "remove it" in warning for warning in check(config).warnings)


def test_zookeeper_connect_is_ignored_with_a_warning() -> None:
    key = "systems.kafka.consumer.zookeeper.connect"
    assert any(
        key in warning and "not ZooKeeper" in warning for warning in check(with_derived_keys(JOB)).warnings
    )


@pytest.mark.parametrize(
    "key",
    [
        "task.drop.producer.errors",
        "task.callback.drain.timeout.ms",
        "streams.views.samza.delete.committed.messages",
        "stores.s.container.cache.size.bytes",
        "stores-default.rocksdb.max.manifest.file.size.bytes",
        "systems.kafka.samza.fetch.threshold.bytes",
        "yarn.am.high.availability.enabled",
        "yarn.token.renewal.interval.seconds",
        "blob.store.manager.factory",
        "metrics.timer.debug.enabled",
    ],
)
def test_settings_without_a_counterpart_say_why(key: str) -> None:
    known = find_key(key)
    assert known is not None
    assert known.no_effect
