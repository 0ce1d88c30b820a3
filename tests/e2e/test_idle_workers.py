"""A job that nothing arrives for keeps its Python workers, and what StreamTasks hold in them."""

from __future__ import annotations

import json
import subprocess
import sys
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


LOOKING = """
import os
from grete.spark.session import build_context
from grete.spark.stream_task import SparkEngine

context = build_context("idle", {"spark.master": "local[1]"})

def field(instance, name):
    found = instance.getClass().getDeclaredField(name)
    found.setAccessible(True)
    return found.get(instance)

def last_used_ns():
    # when a Python worker was given back last: Spark ends those of a factory that goes a minute without
    factories = field(context._jvm.org.apache.spark.SparkEnv.get(), "pythonWorkers").values()
    assert factories.size() == 1
    return int(field(factories.head(), "org$apache$spark$api$python$PythonWorkerFactory$$lastActivityNs"))

def workers():
    return context.parallelize(range(1), 1).mapPartitions(lambda _: [os.getpid()]).collect()

first, before = workers(), last_used_ns()
SparkEngine(context, has_windows=False, idle_s=0.0).keep_alive()
print("used later:", last_used_ns() > before, "the same:", workers() == first)
"""


@pytest.mark.timeout(180)
def test_spark_takes_its_workers_for_used_and_they_stay_the_same() -> None:
    """In a process of its own: a session of other tests has workers of theirs."""
    looked = subprocess.run(
        [sys.executable, "-c", LOOKING], capture_output=True, text=True, timeout=patient(170)
    )
    assert looked.stdout == "used later: True the same: True\n", looked.stderr


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
