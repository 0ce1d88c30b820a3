"""A failing job reports why, in its log stream and its diagnostics stream, and no secret with it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem, Message

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TALKER = """
import logging
import grete

log = logging.getLogger("talker")

class Talker(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        log.info("saw %s, password is not-for-you", envelope.message)
        if envelope.message == "bad":
            raise ValueError("cannot take not-for-you")
"""
SETTINGS = """
task.class=talker:Talker
task.log4j.system=logs
systems.logs.samza.factory=local
systems.local.samza.factory=local
job.coordinator.system=local
systems.logs.path={logs}
job.diagnostics.enabled=true
metrics.reporter.diagnosticsreporter.stream=logs.diagnostics
my.password=not-for-you
cluster-manager.container.retry.count=0
"""


def documents(directory: Path, stream: str) -> list[tuple[str, Any]]:
    with closing(LocalSystem(directory, SystemClock())) as local:
        return [
            ((key or b"").decode(), json.loads(value))
            for partition in range(local.partition_count(stream))
            for _, batch in local.read(stream, partition, 0)
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        ]


def test_what_task_container_and_coordinator_say_is_in_the_streams(counter_job: Any, tmp_path: Path) -> None:
    counter_job.fill(2)
    with closing(LocalSystem(counter_job.home / "local", SystemClock())) as local:
        local.append("in", [Message(b"k", b'"bad"', 1, 0)])
    (counter_job.config.parent / "talker.py").write_text(TALKER)
    with counter_job.config.open("a") as config:
        config.write(SETTINGS.format(logs=tmp_path / "logs"))
    assert counter_job.run().returncode == 3

    logs = documents(tmp_path / "logs", "__samza_counter_1_logs")
    said = [(key, event["message"]) for key, event in logs if event["logger_name"] == "talker"]
    assert ("samza-container-0", "saw bad, password is ********") in said
    coordinator = [event["message"] for key, event in logs if key == "samza-job-coordinator"]
    assert any(message.startswith("launching container 0") for message in coordinator)
    assert any(message.startswith("container-exited") for message in coordinator), "to its end"

    diagnostics = [event for _, event in documents(tmp_path / "logs", "diagnostics")]
    starts = [e["header"]["container-name"] for e in diagnostics if "config" in json.dumps(e["metrics"])]
    assert {"samza-container-0", "samza-job-coordinator"} <= set(starts)
    text = json.dumps(diagnostics)
    assert "grete.errors.ProcessingError" in text
    assert '"exitStatus": 3' in text
    assert "not-for-you" not in text + json.dumps(logs)
