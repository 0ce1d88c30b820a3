"""Outputs that are larger than the heap of Spark's driver."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import patient

pytestmark = pytest.mark.spark
RECORDS, AT_MOST, OUTPUT_BYTES = 8_000, 1_000, 20_000
LARGER = """
import grete

class Larger(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.offset + "x" * 20_000)
"""
PROPERTIES = """
job.name=counter
job.application.path=.
task.class=counter:Larger
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.msg.serde=string
spark.master=local[2]
spark.driver.memory=512m
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@pytest.mark.timeout(300)
def test_outputs_larger_than_the_drivers_heap_are_committed_and_no_commit_is_larger_than_the_limit(
    tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    job = job_maker(tmp_path, LARGER, PROPERTIES)
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", 2))
        local.append("in", (Message(None, b"{}", 1_000, partition=i % 2) for i in range(RECORDS)))
    done = job.run("--set", f"task.max.records.per.batch={AT_MOST}")
    assert done.returncode == 0, done.stderr + job.log()[-4_000:]
    shown = subprocess.run(
        job.command("checkpoint", "show", "-o", "json"),
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    last = [row["batch_id"] for row in json.loads(shown.stdout).values()]
    assert min(last) >= RECORDS // 2 // AT_MOST - 1
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        sent = [
            [
                value[:-OUTPUT_BYTES]
                for _, batch in local.read("out", p, 0)
                for value in batch.column(1).to_pylist()
            ]
            for p in range(2)
        ]
    assert sent == [[b"%d" % i for i in range(RECORDS // 2)]] * 2
