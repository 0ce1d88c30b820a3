"""`grete migrate samza --check` on jobs as Samza's users have them: every key gets an answer, and a way out."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from grete.cli.main import main
from grete.config.load import load, load_file
from grete.config.rules.validate import check as validated
from grete.migration.application import python_class
from grete.migration.check import check
from grete.migration.note import Outcome

JOBS = Path(__file__).parent / "samza_jobs"
NAMES = ("parser", "sessions", "hubs")
Output = pytest.CaptureFixture[str]


def notes(name: str, **more: str) -> dict[str, Any]:
    return {note.key: note for note in check(load_file(JOBS / f"{name}.properties") | more).notes}


def test_every_problem_of_a_login_is_said_at_once() -> None:
    kerberos = {
        "systems.kafka.producer.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"
    }
    found = {key for key, note in notes("sessions", **kerberos).items() if note.outcome is Outcome.BLOCKS}
    assert {*kerberos, "systems.kafka.producer.ssl.truststore.location"} <= found


@pytest.mark.parametrize("name", NAMES)
def test_every_key_gets_one_note(name: str) -> None:
    config = load_file(JOBS / f"{name}.properties")
    found = check(config).notes
    assert config.keys() <= {note.key for note in found}
    assert len({note.key for note in found}) == len(found)
    assert all(note.way_out for note in found if note.outcome is Outcome.PORT)


def test_a_job_of_the_tutorials_runs_once_its_task_is_ported(capsys: Output) -> None:
    assert main(["migrate", "samza", "--check", str(JOBS / "parser.properties")]) == 0
    shown = capsys.readouterr().out
    assert "0 will not work" in shown


@pytest.mark.parametrize(
    ("key", "outcome", "says"),
    [
        ("task.class", Outcome.PORT, "grete.StreamTask"),
        ("job.factory.class", Outcome.MAPPED, "spark.master"),
        ("task.checkpoint.factory", Outcome.AS_IS, "__samza_checkpoint_ver_1_for_edit-parser_1"),
        ("task.drop.deserialization.errors", Outcome.AS_IS, "put aside as a dead letter"),
        ("yarn.queue", Outcome.AS_IS, "spark.yarn.queue=streams"),
        ("cluster-manager.container.memory.mb", Outcome.AS_IS, "spark.executor.memory=2048m"),
        ("systems.kafka.samza.factory", Outcome.AS_IS, "`kafka`"),
        ("systems.kafka.consumer.zookeeper.connect", Outcome.NO_EFFECT, "not ZooKeeper"),
        ("systems.kafka.consumer.isolation.level", Outcome.MAPPED, "aborted records"),
        ("systems.kafka.producer.compression.type", Outcome.AS_IS, ""),
        ("job.coordinator.factory", Outcome.AS_IS, "elected on the system of the coordinator stream"),
        ("metrics.reporter.snapshot.class", Outcome.AS_IS, ""),
        ("metrics.reporter.jmx.class", Outcome.NO_EFFECT, "/metrics"),
        ("serializers.registry.metrics.class", Outcome.AS_IS, "`json`"),
        ("edits.languages", Outcome.AS_IS, "context.config"),
    ],
)
def test_a_stateless_job_on_yarn(key: str, outcome: Outcome, says: str) -> None:
    note = notes("parser")[key]
    assert note.outcome is outcome
    assert says in note.says + note.way_out


@pytest.mark.parametrize(
    ("key", "outcome", "says"),
    [
        ("app.class", Outcome.PORT, "grete.DataFramePipeline"),
        ("app.name", Outcome.AS_IS, "names the job"),
        ("job.coordinator.factory", Outcome.AS_IS, "elected on ZooKeeper"),
        ("job.coordinator.zk.consensus.timeout.ms", Outcome.NO_EFFECT, "do not vote"),
        ("task.name.grouper.factory", Outcome.AS_IS, "GroupByContainerIdsFactory"),
        ("stores.sessions.changelog", Outcome.AS_IS, "rebuilt"),
        ("stores.sessions.rocksdb.ttl.ms", Outcome.AS_IS, "gone as soon as it is older"),
        ("stores.cache.changelog", Outcome.MAPPED, "sessions-2-cache-changelog"),
        ("serializers.registry.avro-profile.class", Outcome.PORT, "grete.Serde"),
        ("systems.kafka.producer.partitioner.class", Outcome.NO_EFFECT, "hashCode"),
        ("systems.kafka.producer.ssl.truststore.location", Outcome.BLOCKS, "ssl.truststore.type=PEM"),
        ("systems.kafka.producer.ssl.truststore.password", Outcome.AS_IS, "${env:NAME}"),
    ],
)
def test_a_stateful_job_beside_zookeeper(key: str, outcome: Outcome, says: str) -> None:
    note = notes("sessions")[key]
    assert note.outcome is outcome
    assert says in note.says + note.way_out


def test_a_key_that_nearly_is_a_known_one_is_named_with_the_one_that_was_meant() -> None:
    found = notes("parser", **{"task.chekpoint.system": "kafka", "parser.languages": "de"})
    assert "did you mean task.checkpoint.system?" in found["task.chekpoint.system"].way_out
    assert found["parser.languages"].way_out == ""


def test_each_problem_is_reported_once() -> None:
    found = check(load_file(JOBS / "hubs.properties")).notes
    blocking = {note.key for note in found if note.outcome is Outcome.BLOCKS}
    assert blocking == {
        "task.inputs",
        "systems.archive.samza.factory",
        "stores.latest.backup.factories",
    }


def test_a_store_that_a_stream_fills_goes_on_with_a_processor_in_python() -> None:
    found, factory = notes("hubs"), "stores.profiles.side.inputs.processor.factory"
    assert found["stores.profiles.side.inputs"].outcome is Outcome.AS_IS
    assert found[factory].outcome is Outcome.PORT
    assert found[factory].changes[factory] == "profiles_processor_factory:ProfilesProcessorFactory"
    planned = "stores.profiles.side.inputs.processor.serialized.instance"
    lambda_ = notes("hubs", **{planned: "rO0ABXNy", factory: ""})[planned]
    assert lambda_.outcome is Outcome.PORT
    assert lambda_.changes == {planned: None, factory: "side_inputs:Profiles"}


def test_a_job_that_reads_event_hubs_keeps_its_logs_on_kafka() -> None:
    ported = notes("hubs", **{"task.inputs": "hubs.readings", "task.checkpoint.system": "kafka"})
    assert ported["systems.hubs.samza.factory"].outcome is Outcome.AS_IS
    assert ported["task.checkpoint.system"].outcome is Outcome.AS_IS
    assert (
        notes("hubs", **{"task.inputs": "hubs.readings"})["task.checkpoint.system"].outcome is Outcome.BLOCKS
    )


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("task.inputs", "readings"),
        ("systems.archive.samza.factory", "to Kafka"),
        ("stores.latest.backup.factories", "KafkaChangelogStateBackendFactory"),
    ],
)
def test_what_will_not_work_names_the_way_out(key: str, says: str) -> None:
    note = notes("hubs")[key]
    assert note.outcome is Outcome.BLOCKS
    assert says in note.way_out


def test_the_exit_code_says_whether_something_will_not_work(capsys: Output) -> None:
    assert main(["migrate", "samza", "--check", str(JOBS / "hubs.properties")]) == 1
    capsys.readouterr()
    assert main(["migrate", "samza", "--check", str(JOBS / "sessions.properties"), "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["blocks"]
    assert document["counts"]["will not work"] == 1


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"systems.kafka.samza.msg.serde": "serializable"}, "systems.kafka.samza.msg.serde"),
        ({"job.systemstreampartition.matcher.class": "x.M"}, "job.systemstreampartition.matcher.class"),
        ({"job.elasticity.factor": "0"}, "job.elasticity.factor"),
        ({"job.container.count": "many"}, "job.container.count"),
        ({"task.name.grouper.factory": "com.example.Grouper"}, "task.name.grouper.factory"),
        ({"task.checkpoint.factory": "com.example.CheckpointManagerFactory"}, "task.checkpoint.factory"),
    ],
)
def test_what_grete_run_would_refuse_is_reported_beforehand(more: dict[str, str], key: str) -> None:
    assert notes("parser", **more)[key].outcome is Outcome.BLOCKS


def test_checkpoints_on_another_cluster_than_the_inputs_are_reported() -> None:
    other = {"systems.logs.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory"}
    other |= {"task.checkpoint.system": "logs", "systems.logs.producer.bootstrap.servers": "elsewhere:9092"}
    assert notes("parser", **other)["task.checkpoint.system"].outcome is Outcome.BLOCKS
    other["systems.logs.producer.bootstrap.servers"] = (
        "broker2:9092,broker1:9092"  # another name of the same one
    )
    assert notes("parser", **other)["task.checkpoint.system"].outcome is Outcome.AS_IS


def test_secrets_are_not_shown(capsys: Output) -> None:
    main(["migrate", "samza", "--check", str(JOBS / "hubs.properties"), str(JOBS / "sessions.properties")])
    shown = capsys.readouterr().out
    assert "changeit" not in shown
    assert "c2VjcmV0" not in shown


def test_the_written_file_is_what_grete_runs(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "ported.properties"
    assert main(["migrate", "samza", "--check", str(JOBS / "parser.properties"), "--write", str(out)]) == 0
    config = load([str(out)], {})
    assert validated(config).errors == ()
    before = load_file(JOBS / "parser.properties")
    assert {key for key in config if config[key] != before.get(key)} == {
        "task.class",
        "job.launcher",
        "systems.kafka.consumer.isolation.level",
    }
    assert config["task.class"] == "edit_parser_task:EditParserTask"
    lines = out.read_text().splitlines()
    at = lines.index("task.class=edit_parser_task:EditParserTask")
    assert "# task.class=com.example.edits.EditParserTask" in lines[at - 4 : at]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "ported.properties"
    out.write_text("mine")
    assert main(["migrate", "samza", "--check", str(JOBS / "parser.properties"), "--write", str(out)]) != 0
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("java", "python"),
    [
        ("com.example.PageViews", "page_views:PageViews"),
        ("Task", "task:Task"),
        ("a.Outer$Inner", "outer_inner:Outer_Inner"),
        ("a.b.HTTPParser2Task", "httpparser2_task:HTTPParser2Task"),
    ],
)
def test_a_ported_class_is_looked_for_under_its_own_name(java: str, python: str) -> None:
    assert python_class(java) == python


@pytest.mark.parametrize(
    ("value", "outcome", "says"),
    [("*", Outcome.AS_IS, "put aside as a dead letter"),
     ("java.lang.NumberFormatException", Outcome.PORT, "names of Python's classes")],
)  # fmt: skip
def test_ignored_exceptions_become_dead_letters_by_pythons_names(
    value: str, outcome: Outcome, says: str
) -> None:
    [note] = [
        one for one in check({"task.ignored.exceptions": value}).notes if one.key == "task.ignored.exceptions"
    ]
    assert (note.outcome, says in note.says) == (outcome, True)
