"""A job as Samza 1.x writes them, whose streams have ids: run as a whole, in two containers, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import patient

COPY = """
import grete

class Copy(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.id-out", envelope.message, key=envelope.key)
"""
PROPERTIES = """
job.name=ids
job.container.count=2
job.application.path=.
task.class=copying:Copy
task.inputs=local.id-in
task.outputs=local.id-out
job.default.system=local
systems.local.samza.factory=local
streams.orders.samza.physical.name=id-in
streams.orders.samza.offset.default=oldest
streams.orders.samza.msg.serde=json
streams.sent.samza.physical.name=id-out
streams.sent.samza.msg.serde=json
"""
RECORDS = 400


@pytest.mark.timeout(120)
def test_a_job_whose_streams_have_ids_loses_nothing_of_what_was_there_before_it(home: Path) -> None:
    (home / "copying.py").write_text(COPY)
    (home / "ids.properties").write_text(PROPERTIES)
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("id-in", 4))
        local.append("id-in", (Message(b"%d" % n, b"%d" % n, n) for n in range(RECORDS)))

    command = [
        sys.executable,
        "-m",
        "grete.testing.sparkless",
        "--config",
        "ids.properties",
        "--until-drained",
    ]
    ran = subprocess.run(
        command,
        cwd=home,
        env={**os.environ, "GRETE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=patient(100),
    )

    assert ran.returncode == 0, ran.stderr
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        assert local.partition_count("id-out") == 4  # as many as the inputs of all containers have
        partitions = range(4)
        sent = [n for partition in partitions for n in _numbers(local, partition)]
    assert sorted(sent) == list(range(RECORDS))
    with open_job(JobId("ids")) as handle:
        assert handle.lag().total == 0


def _numbers(local: LocalSystem, partition: int) -> list[int]:
    batches = (batch for _, batch in local.read("id-out", partition, 0))
    return [json.loads(value) for batch in batches for value in batch.column(1).to_pylist()]
