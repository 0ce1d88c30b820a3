"""A job that nothing arrives for keeps its Python workers, and what StreamTasks hold in them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.errors import StreamNotFound
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import eventually, patient, reaches

pytestmark = pytest.mark.spark
_SPARK_ENDS_IDLE_WORKERS_S = 60 + 10
"""It looks every ten seconds."""
SEEN = """
import grete

class Seen(grete.StreamTask):
    def __init__(self):
        self.seen = 0

    def process(self, envelope, collector, coordinator):
        self.seen += 1
        collector.send("local.out", self.seen)
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_an_instance_outlives_more_than_a_minute_without_messages(
    tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    job = job_maker(
        tmp_path,
        SEEN,
        "job.name=seen\njob.application.path=.\ntask.class=counter:Seen\ntask.inputs=local.in\n"
        "task.outputs=local.out\nsystems.local.samza.offset.default=oldest\n"
        "systems.local.samza.msg.serde=json\nspark.master=local[1]\n",
    )

    def send() -> None:
        with closing(LocalSystem(job.home / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", 1))
            local.append("in", [Message(b"", b"{}", 1_000)])

    def outputs() -> list[int]:
        with closing(LocalSystem(job.home / "local", SystemClock())) as local:
            try:
                return [json.loads(v) for _, b in local.read("out", 0, 0) for v in b.column(1).to_pylist()]
            except StreamNotFound:
                return []

    send()
    running = subprocess.Popen(job.command("run", "--quiet"), env=job.environment())
    try:
        reaches(lambda: len(outputs()), 1, "the first output", still_s=180)
        idle_until_s = time.monotonic() + _SPARK_ENDS_IDLE_WORKERS_S + 15
        eventually(lambda: time.monotonic() > idle_until_s, within_s=200)
        send()
        reaches(lambda: len(outputs()), 2, "the second output", still_s=120)
    finally:
        running.terminate()
        running.wait(patient(60))
    assert outputs() == [1, 2]
