"""Snapshots of metrics in a stream, as Samza's MetricsSnapshotReporter writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.diagnostics.metrics_reporter import MetricsReporters
from grete.errors import StreamNotFound
from grete.model.ids import JobId
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually

JOB = JobId("my-job", "1")
CONFIG = {
    "job.name": "my-job",
    "metrics.reporters": "snapshot,jmx",
    "metrics.reporter.snapshot.class": "org.apache.samza.metrics.reporter.MetricsSnapshotReporterFactory",
    "metrics.reporter.snapshot.stream": "local.metrics",
    "metrics.reporter.jmx.class": "org.apache.samza.metrics.reporter.JmxReporterFactory",
}
SNAPSHOT: dict[str, dict[str, dict[str, Any]]] = {
    "samza-container-0": {"container": {"commit-calls": 2}},
    "TaskName-Partition 0": {"words": {"seen": 3, "mood": "good", "lookup": 0.5}, "other": {"x": 1}},
    "TaskName-Partition 1": {},
}


def reported(home: Path, system: LocalSystem, **more: str) -> list[dict[str, Any]]:
    """What a container that ends at once has written: the first report and the last."""
    reporters = MetricsReporters(lambda: SNAPSHOT, since_ms=17)
    reporters.start(Settings.of({**CONFIG, **more}), JOB, "samza-container-0", home)
    reporters.start(Settings.of({**CONFIG, **more}), JOB, "samza-container-0", home)
    reporters.close()
    return read(system)


def read(system: LocalSystem) -> list[dict[str, Any]]:
    try:
        rows = [row for _, batch in system.read("metrics", 0, 0) for row in batch.to_pylist()]
    except StreamNotFound:
        return []
    assert all(row["key"] is None for row in rows)
    return [json.loads(row["value"]) for row in rows]


def test_each_source_gets_a_message_in_samzas_fields(tmp_path: Path, system: LocalSystem) -> None:
    container, task, *again = reported(tmp_path, system)
    assert [message["metrics"] for message in again] == [container["metrics"], task["metrics"]]
    assert container["metrics"] == SNAPSHOT["samza-container-0"]
    assert task["metrics"] == SNAPSHOT["TaskName-Partition 0"]
    header = task["header"]
    assert list(header) == [
        "job-name",
        "job-id",
        "container-name",
        "exec-env-container-id",
        "samza-epoch-id",
        "source",
        "version",
        "samza-version",
        "host",
        "time",
        "reset-time",
    ]
    assert (header["job-name"], header["job-id"], header["container-name"]) == (
        "my-job",
        "1",
        "samza-container-0",
    )
    assert (header["source"], header["reset-time"]) == ("TaskName-Partition 0", 17)


def test_metrics_of_the_blacklist_are_left_out(tmp_path: Path, system: LocalSystem) -> None:
    blacklist = {"metrics.reporter.snapshot.blacklist": r"words\.(mood|lookup)|(other|container)\..*"}
    assert [message["metrics"] for message in reported(tmp_path, system, **blacklist)] == [
        {"words": {"seen": 3}},
        {"words": {"seen": 3}},
    ]


def test_with_samzas_newer_serde_the_messages_have_its_type_tags(tmp_path: Path, system: LocalSystem) -> None:
    """The tags are those of the real serde, for the same values."""
    serde = {
        "systems.local.streams.metrics.samza.msg.serde": "tagged",
        "serializers.registry.tagged.class": "org.apache.samza.serializers.MetricsSnapshotSerdeV2Factory",
    }
    _, task, *_ = reported(tmp_path, system, **serde)
    assert list(task) == ["header", "metrics"]
    kind, header = task["header"]
    assert (kind, header["reset-time"], header["source"]) == (
        "java.util.HashMap",
        ["java.lang.Long", 17],
        "TaskName-Partition 0",
    )
    words = {"seen": ["java.lang.Long", 3], "mood": "good", "lookup": 0.5}
    groups = {
        "words": ["java.util.HashMap", words],
        "other": ["java.util.HashMap", {"x": ["java.lang.Long", 1]}],
    }
    assert task["metrics"] == ["java.util.HashMap", groups]


def test_it_goes_on_every_interval(tmp_path: Path, system: LocalSystem) -> None:
    reporters = MetricsReporters(lambda: SNAPSHOT, since_ms=0)
    reporters.start(
        Settings.of({**CONFIG, "metrics.reporter.snapshot.interval": "1"}), JOB, "samza-container-0", tmp_path
    )
    try:
        eventually(lambda: len(read(system)) >= 6, "three reports")
    finally:
        reporters.close()


def test_without_reporters_nothing_is_written(tmp_path: Path, system: LocalSystem) -> None:
    assert reported(tmp_path, system, **{"metrics.reporters": ""}) == []


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("stream", None, "Missing required config: metrics.reporter.snapshot.stream"),
        ("stream", "metrics", "metrics"),
        ("stream", "local.in", "reads or writes this stream itself"),
        ("stream", "hubs.metrics", "set systems.hubs.samza.factory"),
        ("interval", "0", "metrics.reporter.snapshot.interval"),
        ("blacklist", "(", "metrics.reporter.snapshot.blacklist"),
    ],
)
def test_wrong_settings_are_refused_at_submit(key: str, value: str | None, problem: str) -> None:
    name = f"metrics.reporter.snapshot.{key}"
    config = {**CONFIG, "task.inputs": "local.in", "task.class": "m:C", name: value}
    errors = check({key: value for key, value in config.items() if value is not None}).errors
    assert [error for error in errors if re.search(re.escape(problem), error)]


def test_reporters_that_are_not_there_are_said_to_have_no_effect() -> None:
    warnings = check({**CONFIG, "task.inputs": "local.in", "task.class": "m:C"}).warnings
    assert "no effect in grete: metrics.reporter.jmx.class (see `/metrics`)" in warnings
