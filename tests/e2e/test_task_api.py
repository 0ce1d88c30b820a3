"""A task that uses everything that Samza's tasks have, run by Spark from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.systems.records import rows_of
from grete.testing.waiting import patient

APPLICATION = """
import asyncio

import grete


class Everything(grete.AsyncStreamTask):
    async def init(self, context):
        self.name = context.task_name
        self.sums = context.store("sums")
        self.timers = context.scheduler
        self.seen = context.metrics.counter("seen", group="everything")

    async def process(self, envelope, collector, coordinator):
        await asyncio.sleep(0.001)
        self.seen.inc()
        self.sums.put("sum", (self.sums.get("sum") or 0) + envelope.message)
        collector.send("local.out", "message", headers=envelope.headers)
        self.timers.schedule("soon", 0)

    async def on_timer(self, key, collector, coordinator):
        collector.send("local.out", key)

    async def on_end_of_stream(self, collector, coordinator):
        collector.send("local.out", {self.name: self.sums.get("sum")})
"""
CONFIG = """
job.name=everything
task.class=everything:Everything
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.msg.serde=json
stores.sums.factory=grete.store.sqlite
stores.sums.key.serde=string
stores.sums.msg.serde=json
metrics.reporters=s
metrics.reporter.s.class=snapshot
metrics.reporter.s.stream=local.metrics
"""


@pytest.fixture(params=["in the worker", "in an environment of its own"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Keys that say where the application runs."""
    if request.param == "in the worker":
        return "task.max.concurrency=10\n"
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    for name in ("apsw", "orjson", "pyarrow", "msgspec"):
        (packages / f"{name}.py").write_text(
            "raise ImportError('not the version that the framework needs')\n"
        )
    return f"job.split.deployment.enabled=true\njob.application.environment={environment}\n"


def test_a_task_with_headers_timers_metrics_and_awaits_is_told_of_its_end(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    (tmp_path / "everything.py").write_text(APPLICATION)
    (tmp_path / "job.properties").write_text(CONFIG + place + f"job.application.path={tmp_path}\n")
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 2))
        trace = [("trace", b"7")]
        local.append("in", [Message(None, b"%d" % i, 1, i % 2, trace) for i in range(100)])
    command = [sys.executable, "-m", "grete.cli.main", "run", "--until-drained", "--quiet"]
    done = subprocess.run(
        [*command, "--config", str(tmp_path / "job.properties")],
        env={**os.environ, "GRETE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=patient(300),
    )
    assert done.returncode == 0, done.stderr
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        sent = read(local, "out", 2)
        documents = [json.loads(value) for _, value, _ in read(local, "metrics", 1)]
    messages = [(json.loads(value), headers) for _, value, headers in sent]
    assert sum(message == ("message", trace) for message in messages) == 100
    assert ("soon", []) in messages
    ends = [message for message, _ in messages if isinstance(message, dict)]
    assert sorted(ends, key=str) == [{"Partition 0": 2450}, {"Partition 1": 2500}]
    last = {one["header"]["source"]: one["metrics"] for one in documents}
    seen = [last[f"TaskName-Partition {partition}"]["everything"]["seen"] for partition in range(2)]
    assert seen == [50, 50]


def read(local: LocalSystem, stream: str, partitions: int) -> list[tuple[int, Any, list[Any]]]:
    """Time, value and headers of each record."""
    return [
        (time_ms, value, list(headers))
        for partition in range(partitions)
        for first, batch in local.read(stream, partition, 0)
        for _, _, value, time_ms, headers in rows_of(first, batch)
    ]
