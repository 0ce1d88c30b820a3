"""A job's traces in OpenTelemetry's own collector, which refuses what it does not understand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.visits_job import running_visits

from grete.testing.server_cluster import free_ports, jars_directory
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(120)]
PROGRAM = jars_directory("GRETE_OTEL_COLLECTOR", "otel-collector-0.144.0") / "otel-collector"


def test_a_collector_takes_what_a_job_says(home: Path) -> None:
    [port] = free_ports(1)
    written = home / "spans.jsonl"
    pipeline = {"receivers": ["otlp"], "exporters": ["file"]}
    configuration = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"file": {"path": str(written), "flush_interval": "100ms"}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"traces": pipeline}},
    }
    file = home / "collector.yaml"
    file.write_text(yaml.safe_dump(configuration))
    log = home / "collector.log"
    with log.open("wb") as output, subprocess.Popen([PROGRAM, "--config", file], stderr=output) as collector:
        try:
            eventually(lambda: "Everything is ready" in log.read_text(), "it listens", context=log.read_text)
            with running_visits(home, "a visit", **{"job.traces.endpoint": f"http://127.0.0.1:{port}"}):
                eventually(
                    lambda: {"submit", "change", "start", "batch", "commit"} <= set(names(written)),
                    "it has the spans",
                    context=log.read_text,
                )
        finally:
            collector.terminate()
    assert {"samza-job-coordinator", "samza-container-0"} == set(names(written).values())


def names(file: Path) -> dict[str, str]:
    """The process that each span of a name is of."""
    lines = file.read_text().splitlines() if file.exists() else []
    found = {}
    for of_process in [one for line in lines for one in json.loads(line)["resourceSpans"]]:
        who = {
            one["key"]: one["value"].get("stringValue", "") for one in of_process["resource"]["attributes"]
        }
        for span in [span for scope in of_process["scopeSpans"] for span in scope["spans"]]:
            found[span["name"]] = who["service.instance.id"]
    return found
