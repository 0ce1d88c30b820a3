"""A small job that runs without Spark: it reads visits, and sets aside those that are odd."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grete.cli.main import main
from grete.model.ids import JobId
from grete.operations import open_job
from grete.testing.waiting import eventually

_APPLICATION = """
import os

import grete

class Visits(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        if envelope.message == "odd":
            raise ValueError("an odd visit")
        if envelope.message == "deadly":
            os._exit(13)
"""
_CONFIG = {
    "job.name": "visits",
    "job.application.path": ".",
    "task.class": "visits:Visits",
    "task.inputs": "local.in",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.msg.serde": "string",
    "task.poison.policy": "dead-letter",
    "task.poison.dead-letter.stream": "local.odd",
}
JOB = JobId("visits")


@contextmanager
def running_visits(
    home: Path, *visits: str, partitions: int = 1, **config: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The job in the home that GRETE_HOME names, once it has processed these visits; killed at the end."""
    (home / "visits.py").write_text(_APPLICATION)
    path = home / "visits.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**_CONFIG, **config}.items()))
    assert main(["stream", "create", "local.in", "--partitions", str(partitions)]) == 0
    assert main(["stream", "create", "local.odd", "--partitions", "1"]) == 0
    append(home, *visits)
    command = [sys.executable, "-m", "grete.testing.sparkless", "--config", str(path)]
    with (home / "run.log").open("wb") as log:
        running = subprocess.Popen(command, env={**os.environ}, stdout=log, stderr=log)
    try:
        eventually(lambda: behind() == 0, "all is processed", context=(home / "run.log").read_text)
        yield running
    finally:
        running.kill()
        running.wait()


def append(home: Path, *visits: str) -> None:
    file = home / "lines"
    file.write_text("".join(f"{visit}\n" for visit in visits))
    assert main(["stream", "append", "local.in", "--from-file", str(file), "--lines"]) == 0


def behind() -> int | None:
    with open_job(JOB, must_exist=False) as handle:
        return handle.lag().total if handle.active_tasks() else None
