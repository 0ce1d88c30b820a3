"""Kinds of configurations that `grete migrate samza --check` has misjudged, each as a small job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.config.keys import nearest_key
from grete.config.load import load_file
from grete.config.rules.validate import check as validated
from grete.config.rules.warnings import warnings_of
from grete.errors import ConfigError
from grete.kafka.settings import client_settings
from grete.migration.check import check
from grete.migration.note import Note, Outcome

Output = pytest.CaptureFixture[str]
KAFKA = {
    "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
    "systems.kafka.producer.bootstrap.servers": "broker:9092",
}
JOB = {"job.name": "orders", "job.coordinator.system": "kafka"}
TASK = {**JOB, **KAFKA, "task.class": "com.example.Orders", "task.inputs": "kafka.orders"}
ROCKSDB = "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory"


def notes(config: Mapping[str, str]) -> dict[str, Note]:
    return {note.key: note for note in check(config).notes}


def blocking(config: Mapping[str, str]) -> dict[str, Note]:
    return {key: note for key, note in notes(config).items() if note.outcome is Outcome.BLOCKS}


def without(config: Mapping[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in config.items() if key not in keys}


# --- keys that nobody reads ---


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("systems.kafka.msg.serde", "systems.kafka.samza.msg.serde"),
        ("systems.kafka.offset.default", "systems.kafka.samza.offset.default"),
        ("systems.kafka.streams.orders.msg.serde", "systems.kafka.streams.orders.samza.msg.serde"),
        ("streams.orders.key.serde", "streams.orders.samza.key.serde"),
        ("serializers.registry.json", "serializers.registry.json.class"),
        ("task.checkpoint.replication", "task.checkpoint.replication.factor"),
        ("stores.totals.fctory", "stores.totals.factory"),
    ],
)
def test_a_key_that_samza_does_not_know_either_is_said_to_be_ignored_with_the_one_that_was_meant(
    key: str, meant: str
) -> None:
    note = notes({**TASK, "stores.totals.msg.serde": "json", key: "json"})[key]
    if key.startswith("stores."):
        assert "no such store" in note.says  # what was meant is the key without which there is none
    else:
        assert (note.outcome, note.way_out) == (Outcome.NO_EFFECT, f"did you mean {meant}?")
        assert note.says.startswith("Samza ignores it too")
    assert nearest_key(key, {}) == meant


def test_a_factory_under_another_key_is_none_and_the_system_is_refused_where_it_is_used() -> None:
    key = "systems.kafka.samza.factory.class"
    config = {
        **without(TASK, "systems.kafka.samza.factory"),
        key: "org.apache.samza.system.kafka.KafkaSystemFactory",
    }
    note = notes(config)[key]
    assert (note.outcome, note.way_out) == (Outcome.NO_EFFECT, "did you mean systems.kafka.samza.factory?")
    assert "set systems.kafka.samza.factory" in blocking(config)["task.inputs"].says


def test_beside_the_factory_another_one_is_ignored_by_samza_too() -> None:
    note = notes({**TASK, "systems.kafka.samza.factory.class": "x.Factory"})[
        "systems.kafka.samza.factory.class"
    ]
    assert (note.outcome, note.says, note.way_out) == (Outcome.NO_EFFECT, "Samza ignores it too", "")


def test_settings_of_a_system_that_nothing_uses_and_that_has_no_factory_are_said_to_be_of_none() -> None:
    old = {**TASK, "systems.old.producer.bootstrap.servers": "elsewhere:9092"}
    assert "there is no such system" in notes(old)["systems.old.producer.bootstrap.servers"].says
    assert any("systems.old.samza.factory is not set" in warning for warning in warnings_of(old))
    assert blocking(old) == {}


def test_settings_of_a_system_of_the_users_own_are_read_by_its_code() -> None:
    irc = {**TASK, "systems.irc.samza.factory": "com.example.IrcSystemFactory", "systems.irc.port": "6667"}
    assert notes(irc)["systems.irc.port"].outcome is Outcome.AS_IS
    assert notes(irc)["systems.irc.port"].way_out == ""


# --- names of streams ---


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("task.inputs", "kafka.orders as o", "did you mean task.inputs=kafka.orders?"),
        ("task.inputs", "kafka.orders; kafka.bills", "did you mean task.inputs=kafka.orders,kafka.bills?"),
        ("task.inputs", "kafka.orders/v1", "1 to 249 of A-Z"),
        ("task.outputs", "kafka.big orders", "did you mean task.outputs="),
        ("task.broadcast.inputs", "kafka.rates (all)#0", "is no stream"),
        ("stores.totals.changelog", "kafka.totals log", "is no stream"),
    ],
)
def test_a_name_that_no_stream_can_have_is_refused_with_what_is_meant(
    key: str, value: str, says: str
) -> None:
    config = {**TASK, "stores.totals.factory": ROCKSDB, key: value}
    assert says.removesuffix("task.outputs=") in blocking(config)[key].says
    ported = {**config, "task.class": "orders:Orders"}
    assert any(key in error and "is no stream" in error for error in validated(ported).errors)


def test_names_of_systems_of_other_kinds_are_theirs() -> None:
    irc = {**TASK, "systems.irc.samza.factory": "com.example.IrcSystemFactory", "task.inputs": "irc.#en.news"}
    assert blocking(irc).keys() == {"systems.irc.samza.factory"}


def test_every_problem_of_a_key_is_said() -> None:
    says = blocking({**TASK, "task.inputs": "kafka.orders as o,other.bills"})["task.inputs"].says
    assert "'kafka.orders as o' is no stream" in says
    assert "systems.other.samza.factory" in says


# --- inputs that are not in the configuration ---

REGEX = {
    "job.config.rewriters": "all",
    "job.config.rewriter.all.class": "org.apache.samza.config.RegExTopicGenerator",
    "job.config.rewriter.all.regex": "orders-.*",
    "job.config.rewriter.all.system": "kafka",
}
BY_REGEX = {**without(TASK, "task.inputs"), **REGEX}


def test_the_streams_of_a_regex_are_not_known_until_the_brokers_are_asked() -> None:
    note = notes(BY_REGEX)["job.config.rewriter.all.regex"]
    assert "not known until the brokers are asked" in note.says
    assert "--ask-systems" in note.way_out
    assert blocking(BY_REGEX) == {}


def test_what_else_is_wrong_with_a_job_of_a_regex_is_said_all_the_same() -> None:
    assert (
        "is not configured" in blocking(without(BY_REGEX, "systems.kafka.samza.factory"))["task.inputs"].says
    )
    assert "job.config.rewriter.all.regex" in blocking({**BY_REGEX, "job.config.rewriter.all.regex": "("})


def test_asked_the_systems_say_what_the_regex_chooses() -> None:
    asked = check(BY_REGEX, list_streams=lambda system, config: ["orders-eu", "orders-us", "bills"])
    note = {note.key: note for note in asked.notes}["job.config.rewriter.all.regex"]
    assert note.says == "chooses orders-eu, orders-us"
    assert (asked.run["task.inputs"], asked.blocks) == ("kafka.orders-eu,kafka.orders-us", False)
    assert "task.inputs" not in asked.written
    none = check(BY_REGEX, list_streams=lambda system, config: ["bills"])
    assert "matches no stream" in {note.key: note for note in none.notes}["task.inputs"].says


def test_the_flag_asks_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    for stream in ("orders-eu", "bills"):
        assert main(["stream", "create", f"local.{stream}"]) == 0
    file = tmp_path / "orders.properties"
    config = {"job.name": "orders", "task.class": "com.example.Orders", **REGEX}
    config["job.config.rewriter.all.system"] = "local"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    capsys.readouterr()
    assert main(["migrate", "samza", "--check", str(file)]) == 0
    assert "not known until" in capsys.readouterr().out
    assert main(["migrate", "samza", "--check", str(file), "--ask-systems"]) == 0
    assert "chooses orders-eu\n" in capsys.readouterr().out


def test_inputs_that_a_rewriter_in_java_sets_are_not_asked_for() -> None:
    config = {**BY_REGEX, "job.config.rewriter.all.class": "com.example.Rewriter"}
    assert blocking(config) == {}
    assert notes(config)["job.config.rewriter.all.class"].outcome is Outcome.PORT


def test_a_job_that_descriptors_describe_gets_one_row_that_says_what_to_write() -> None:
    described = {
        "app.class": "com.example.OrdersApplication",
        "job.name": "orders",
        "job.default.system": "kafka",
        "job.changelog.system": "kafka",
        "task.checkpoint.factory": "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory",
        "task.checkpoint.system": "kafka",
        "stores.totals.changelog": "kafka.totals-log",
        "metrics.reporters": "snapshot",
        "metrics.reporter.snapshot.class": "org.apache.samza.metrics.reporter.MetricsSnapshotReporterFactory",
        "metrics.reporter.snapshot.stream": "kafka.metrics",
    }
    [(key, note)] = blocking(described).items()
    assert key == "task.inputs"
    assert "descriptors of the Java code" in note.says
    for line in (
        "task.inputs=kafka.page-views",
        "systems.kafka.samza.factory=kafka",
        "systems.kafka.producer.bootstrap.servers=host:9092",
    ):
        assert line in note.way_out
    assert notes(described)["stores.totals.changelog"].outcome is Outcome.AS_IS  # its factory is in the code
    wrong = {**described, "job.container.count": "many"}
    assert blocking(wrong).keys() == {"task.inputs", "job.container.count"}


def test_a_described_job_whose_systems_are_configured_is_told_its_inputs_only() -> None:
    described = {
        **JOB,
        **KAFKA,
        "app.class": "com.example.OrdersApplication",
        "streams.orders.samza.system": "kafka",
    }
    [note] = blocking(described).values()
    assert "task.inputs=kafka.orders;" in note.way_out
    assert "samza.factory" not in note.way_out


def test_a_part_of_a_job_asks_for_the_other_files() -> None:
    part = blocking(without(TASK, "task.inputs", "job.name"))
    assert "--check FILE FILE" in part["task.inputs"].way_out
    assert "Missing required config" in part["job.name"].says


# --- names of Kafka's old clients ---


@pytest.mark.parametrize(
    ("old", "value", "changes"),
    [
        ("producer.metadata.broker.list", "a:1,b:2", {"producer.bootstrap.servers": "a:1,b:2"}),
        ("producer.broker.list", "0:a:1,1:b:2", {"producer.bootstrap.servers": "a:1,b:2"}),
        ("producer.compression.codec", "2", {"producer.compression.type": "snappy"}),
        ("producer.queue.buffering.max.ms", "50", {"producer.linger.ms": "50"}),
        ("consumer.fetch.message.max.bytes", "99", {"consumer.max.partition.fetch.bytes": "99"}),
        ("consumer.fetch.wait.max.ms", "9", {"consumer.fetch.max.wait.ms": "9"}),
        ("consumer.socket.receive.buffer.bytes", "9", {"consumer.receive.buffer.bytes": "9"}),
    ],
)
def test_names_of_kafkas_old_clients_become_todays(old: str, value: str, changes: dict[str, str]) -> None:
    old = f"systems.kafka.{old}"
    [(todays, new)] = [(f"systems.kafka.{key}", value) for key, value in changes.items()]
    config = {**without(TASK, todays), old: value}
    migration = check(config)
    note = {note.key: note for note in migration.notes}[old]
    assert (note.outcome, note.changes) == (Outcome.MAPPED, {old: None, todays: new})
    assert migration.written[todays] == new
    assert not migration.blocks


@pytest.mark.parametrize(
    ("old", "value", "says"),
    [
        ("producer.request.required.acks", "1", "exactly once"),
        ("producer.producer.type", "sync", "exactly once"),
        ("producer.batch.num.messages", "1", "grete decides it"),
        ("producer.serializer.class", "kafka.serializer.StringEncoder", "samza.msg.serde"),
        ("consumer.auto.offset.reset", "smallest", "samza.offset.default"),
        ("consumer.auto.commit.enable", "true", "exactly once"),
        ("consumer.zookeeper.session.timeout.ms", "6000", "through ZooKeeper"),
        ("consumer.rebalance.max.retries", "4", "through ZooKeeper"),
    ],
)
def test_what_old_clients_were_told_and_nobody_is_now_says_why(old: str, value: str, says: str) -> None:
    note = notes({**TASK, f"systems.kafka.{old}": value})[f"systems.kafka.{old}"]
    assert note.outcome is Outcome.NO_EFFECT
    assert says in note.says


def test_todays_name_stands_where_both_are_set() -> None:
    config = {**TASK, "systems.kafka.producer.metadata.broker.list": "old:9092"}
    note = notes(config)["systems.kafka.producer.metadata.broker.list"]
    assert (note.outcome, note.changes) == (Outcome.NO_EFFECT, {})
    assert "systems.kafka.producer.bootstrap.servers is set" in note.says


def test_brokers_that_only_zookeeper_knows_are_asked_for_there() -> None:
    key = "systems.kafka.producer.bootstrap.servers"
    config = {**without(TASK, key), "systems.kafka.consumer.zookeeper.connect": "zk:2181/kafka"}
    assert "zookeeper-shell.sh zk:2181/kafka" in blocking(config)[key].way_out


def test_grete_run_says_the_same_of_old_names() -> None:
    config = {**without(TASK, "systems.kafka.producer.bootstrap.servers")}
    config |= {
        "systems.kafka.producer.metadata.broker.list": "a:1",
        "systems.kafka.producer.compression.codec": "1",
    }
    with pytest.raises(ConfigError, match=r"metadata\.broker\.list is its name before Kafka 0\.9"):
        client_settings(config, "kafka")
    assert any("the name of compression.type before Kafka 0.9" in warning for warning in warnings_of(config))


# --- stores ---


def test_two_stores_on_one_changelog_are_refused_as_samza_refuses_them() -> None:
    config = {**TASK, "job.changelog.system": "kafka"}
    for store, changelog in (("places", "kafka.places-log"), ("rules", "places-log")):
        config |= {f"stores.{store}.factory": ROCKSDB, f"stores.{store}.changelog": changelog}
    assert "Samza 1.1 and later refuse it too" in blocking(config)["stores.rules.changelog"].says


def test_a_store_without_a_factory_is_none_in_samza_and_is_left_out() -> None:
    config = {**TASK, "stores.places.factory": ROCKSDB, "stores.places.changelog": "kafka.places-log"}
    config |= {"stores.rules.changelog": "kafka.places-log", "stores.rules.msg.serde": "json"}
    migration = check(config)
    assert not migration.blocks
    assert not [key for key in migration.written if key.startswith("stores.rules.")]


@pytest.mark.parametrize("name", ["LevelDbKeyValueStorageEngineFactory", "KeyValueStorageEngineFactory"])
def test_stores_of_samza_before_rocksdb_are_known(name: str) -> None:
    config = {**TASK, "stores.totals.factory": f"org.apache.samza.storage.kv.{name}"}
    assert notes(config)["stores.totals.factory"].says == "`grete.store.sqlite`"


# --- what one refusal must not bring along ---


def test_inputs_of_a_system_that_is_not_known_say_nothing_of_where_checkpoints_are() -> None:
    config = {**TASK, "systems.irc.samza.factory": "com.example.IrcSystemFactory", "task.inputs": "irc.news"}
    config["task.checkpoint.system"] = "kafka"
    assert blocking(config).keys() == {"systems.irc.samza.factory"}


def test_of_several_systems_the_one_that_can_keeps_the_coordinator_stream() -> None:
    config = {
        **without(TASK, "job.coordinator.system"),
        "systems.irc.samza.factory": "com.example.IrcSystemFactory",
    }
    note = notes(config)["job.coordinator.system"]
    assert (note.outcome, note.changes) == (Outcome.MAPPED, {"job.coordinator.system": "kafka"})
    two = {**config, **{key.replace("kafka", "other", 1): value for key, value in KAFKA.items()}}
    assert "kafka, other" in blocking(two)["job.coordinator.system"].says


def test_a_launcher_that_is_not_samzas_is_left_out_of_what_is_written() -> None:
    config = {**TASK, "job.factory.class": "com.example.MesosJobFactory"}
    migration = check(config)
    assert not migration.blocks
    assert migration.written.get("job.factory.class") is None
    assert migration.written["job.launcher"] == "process"


def test_the_coordinator_factory_of_samzas_documents_is_left_out() -> None:
    factory = "org.apache.samza.standalone.StandaloneJobCoordinatorFactory"
    note = notes({**TASK, "job.coordinator.factory": factory})["job.coordinator.factory"]
    assert (note.outcome, note.changes) == (Outcome.MAPPED, {"job.coordinator.factory": None})


@pytest.mark.parametrize("value", ["__count__", "{{ count }}", "${count}", "@count@", "<count>"])
def test_a_placeholder_of_a_deployment_is_said_to_be_one(value: str) -> None:
    note = blocking({**TASK, "job.container.count": value})["job.container.count"]
    assert f"{value} is a placeholder" in note.says


# --- the answer ---


def test_the_table_of_methods_is_printed_when_it_is_asked_for(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "orders.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in TASK.items()))
    assert main(["migrate", "samza", "--check", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("grete migrate samza --methods") == 1
    assert "collector.send" not in shown
    assert main(["migrate", "samza", "--methods"]) == 0
    assert 'collector.send("kafka.out", message, key=key)' in capsys.readouterr().out
    assert main(["migrate", "samza", "--methods", "-o", "json"]) == 0
    assert {"samza": "ClosableTask.close()", "grete": "close(self)"} in json.loads(capsys.readouterr().out)


def test_a_written_file_of_old_names_is_one_that_runs(tmp_path: Path) -> None:
    file, out = tmp_path / "orders.properties", tmp_path / "ported.properties"
    old = {**without(TASK, "systems.kafka.producer.bootstrap.servers"), "job.factory.class": "x.MyJobFactory"}
    old["systems.kafka.producer.metadata.broker.list"] = "a:1"
    file.write_text("".join(f"{key}={value}\n" for key, value in old.items()))
    assert main(["migrate", "samza", "--check", str(file), "--write", str(out)]) == 0
    ported = load_file(out)
    assert validated(ported).errors == ()
    assert ported["systems.kafka.producer.bootstrap.servers"] == "a:1"
    assert "systems.kafka.producer.metadata.broker.list" not in ported
