"""The settings with which Spark starts."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.config.settings import Settings
from grete.spark.session.defaults import table
from grete.spark.session.settings import context_settings, driver_environment, session_settings
from grete.spark.session.versions import class_archive


def test_speculation_is_off_for_stream_tasks_whatever_is_configured(caplog: pytest.LogCaptureFixture) -> None:
    assert context_settings("job", Settings())["spark.speculation"] == "false", (
        "a cluster's defaults may have it"
    )
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        found = context_settings(
            "job", Settings.of({"spark.speculation": "true", "spark.speculation.quantile": "0.5"})
        )
    assert found["spark.speculation"] == "false"
    assert "spark.speculation=true is ignored" in caplog.text


def test_dynamic_allocation_is_off_for_stream_tasks_with_a_way_out(caplog: pytest.LogCaptureFixture) -> None:
    """It would begin with two shares, whatever the cluster has."""
    with caplog.at_level(logging.WARNING):
        found = context_settings("job", Settings.of({"spark.dynamicAllocation.enabled": "true"}))
    assert found["spark.dynamicAllocation.enabled"] == "false"
    assert "spark.dynamicAllocation.enabled=true is ignored" in caplog.text
    assert "spark.executor.instances" in caplog.text


@pytest.mark.parametrize("made", [session_settings, context_settings], ids=["pipeline", "StreamTask"])
def test_a_jvm_starts_from_the_archive_of_sparks_classes_where_there_is_one(
    made: Callable[[str, Settings], dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the user's own options too, unless they say what is shared."""

    def options(**config: str) -> str:
        given = {key.replace("_", "."): value for key, value in config.items()}
        return made("job", Settings.of(given))["spark.driver.extraJavaOptions"]

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert "SharedArchiveFile" not in options()
    class_archive().touch()
    archived = f"-XX:SharedArchiveFile={class_archive()}"
    assert archived in options()
    assert options(spark_driver_extraJavaOptions="-Xlog:gc").startswith(f"{archived} -Xlog:gc ")
    for own in ("-Xshare:off", "-XX:SharedArchiveFile=/of/all.jsa", "-XX:ArchiveClassesAtExit=/of/all.jsa"):
        assert archived not in options(spark_driver_extraJavaOptions=own)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/of/all.jsa -XX:+UseSerialGC")
    assert archived not in options(), "Java takes the last one"


def test_executors_start_from_the_archive_too_before_what_else_is_said_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java does without on a machine that has none at the same place. What the environment says is for drivers."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xshare:off")

    def options(made: Callable[[str, Settings], dict[str, str]], **config: str) -> str | None:
        given = {"spark.master": "spark://127.0.0.1:7077"}
        given |= {key.replace("_", "."): value for key, value in config.items()}
        return made("job", Settings.of(given)).get("spark.executor.defaultJavaOptions")

    assert options(session_settings) is None
    assert options(context_settings) == "-XX:TieredStopAtLevel=1", "those of StreamTasks touch no record"
    class_archive().touch()
    archived = f"-XX:SharedArchiveFile={class_archive()}"
    assert options(session_settings) == archived
    assert options(context_settings) == f"{archived} -XX:TieredStopAtLevel=1"
    assert options(context_settings, spark_executor_extraJavaOptions="-Xlog:gc") == options(context_settings)
    assert options(session_settings, spark_executor_extraJavaOptions="-Xshare:off") is None
    assert options(session_settings, spark_executor_defaultJavaOptions="-Xss2m") == "-Xss2m"
    assert options(context_settings, spark_master="local[2]") is None


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(None, "512m"), ("512m", "256m"), ("2g", "1024m"), ("8G", "1024m"), ("262144k", "128m"), ("much", "1g")],
)
def test_results_of_a_job_may_be_half_of_the_drivers_memory(memory: str | None, expected: str) -> None:
    """Rows of a batch are among them where the driver sends them to Kafka; a full heap would end the driver."""
    given = {} if memory is None else {"spark.driver.memory": memory}
    assert session_settings("job", Settings.of(given))["spark.driver.maxResultSize"] == expected
    own = session_settings("job", Settings.of({**given, "spark.driver.maxResultSize": "7m"}))
    assert own["spark.driver.maxResultSize"] == "7m"


def test_the_loopback_address_is_the_drivers_on_a_local_master_only() -> None:
    assert context_settings("job", Settings())["spark.driver.host"] == "127.0.0.1"
    assert context_settings("job", Settings())["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in context_settings("job", Settings.of({"spark.master": "yarn"}))
    unknown = context_settings("job", Settings.of({"spark.master": "spark://no-such-host.invalid:7077"}))
    assert "spark.driver.host" not in unknown


def test_a_driver_in_a_pod_is_where_its_pod_is_and_its_executors_end_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRETE_POD_IP", "10.0.0.7")
    monkeypatch.setenv("GRETE_POD_NAME", "counting-c0-1")
    found = context_settings("job", Settings.of({"spark.master": "k8s://https://kubernetes.default.svc"}))
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("10.0.0.7", "10.0.0.7")
    assert found["spark.kubernetes.driver.pod.name"] == "counting-c0-1"
    alone = {"spark.master": "k8s://https://kubernetes.default.svc", "spark.executor.instances": "0"}
    found = context_settings("job", Settings.of(alone))
    assert (found["spark.master"], found["spark.driver.host"]) == ("local[1]", "127.0.0.1")
    assert "spark.kubernetes.driver.pod.name" not in found


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:7077", "spark://127.0.0.1:7077,other:7077", "k8s://https://127.0.0.1:6443"]
)
def test_the_driver_is_where_it_reaches_the_master_from_unless_it_is_said(master: str) -> None:
    found = context_settings("job", Settings.of({"spark.master": master}))
    assert found["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in found, "Spark's own default is the host"
    said = context_settings(
        "job", Settings.of({"spark.master": master, "spark.driver.host": "driver.example"})
    )
    assert said["spark.driver.host"] == "driver.example"


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        ({"spark.master": "local[3]"}, "3"),
        ({"spark.master": "spark://127.0.0.1:7077", "spark.cores.max": "12"}, "12"),
        ({"spark.master": "yarn", "spark.executor.cores": "4", "spark.executor.instances": "3"}, "12"),
        ({"spark.master": "yarn"}, None),
        ({"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"}, "7"),
    ],
)
def test_a_shuffle_has_as_many_partitions_as_the_container_has_cores(
    config: dict[str, str], partitions: str | None
) -> None:
    assert session_settings("job", Settings.of(config)).get("spark.sql.shuffle.partitions") == partitions


@pytest.mark.parametrize(("enabled", "expected"), [("true", "3"), ("false", "8")])
def test_a_restart_begins_with_the_executors_that_autosizing_has_decided(enabled: str, expected: str) -> None:
    asked = {"spark.master": "yarn", "spark.executor.instances": "8", "app.class": "a:B"}
    sizing = {
        "job.autosizing.enabled": enabled,
        "job.autosizing.policy": "lag",
        "job.autosizing.executor.count": "3",
    }
    assert session_settings("job", Settings.of(asked | sizing))["spark.executor.instances"] == expected


def test_the_interpreter_of_executors_is_the_configured_one() -> None:
    """As of an environment that `spark.archives` brings; Spark itself reads that key only in spark-submit."""
    config = {"spark.master": "yarn", "spark.pyspark.python": "./environment/bin/python"}
    found = driver_environment(
        session_settings("job", Settings.of(config)), {"PYSPARK_PYTHON": "/somewhere/python"}, has_jvm=False
    )
    assert found["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert "SPARK_LOCAL_IP" not in found


def test_working_out_settings_changes_no_variable_of_the_process() -> None:
    before = dict(os.environ)
    session_settings("job", Settings.of({"spark.master": "local[2]"}))
    context_settings("job", Settings.of({"spark.master": "local[2]"}))
    assert dict(os.environ) == before


EVERYTHING = {
    "app.class": "jobs:It",
    "outputs.table.format": "delta",
    "outputs.rows.format": "jdbc",
    "outputs.rows.url": "jdbc:postgresql:",
    "systems.kafka.samza.factory": "kafka",
}


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077"])
def test_every_setting_that_is_not_the_jobs_has_its_reason_in_the_docs(master: str) -> None:
    config = {**EVERYTHING, "spark.master": master}
    found = session_settings("job", Settings.of(config), "kafka") | context_settings(
        "job", Settings.of(config)
    )
    known = {key: (value, why) for key, value, _, why in table()}
    assert found.keys() - Settings.of(config).spark.options.keys() <= known.keys()
    assert all(
        found[key] == value
        for key, (value, _) in known.items()
        if key in found and value[0] != "<" and key != "spark.master"
    )
    text = Path("docs/pipelines.md").read_text()
    for key, value, where, why in table():
        assert f"| `{key}` | `{value}` | {where} | {why} |".replace("|", "|") in text.replace("\\|", "|"), key


def test_a_session_without_a_zone_of_its_job_is_one_of_an_earlier_version() -> None:
    assert session_settings("job", Settings())["spark.sql.session.timeZone"] == "UTC"
    given = session_settings("job", Settings.of({"spark.sql.session.timeZone": "Asia/Tokyo"}))
    assert given["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert "spark.sql.session.timeZone" not in context_settings("job", Settings()), "tasks have no session"
