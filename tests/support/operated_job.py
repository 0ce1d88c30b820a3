"""A job whose containers run their real main loop, and instead of Spark commit a record per task, under their fence,
into a real stream: two writers of one task would show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from grete.clock import SystemClock
from grete.metadata.launches import read_launches
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.operations.job_handle import JobHandle
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually, patient

CONTAINER = """
import json, os, signal, sys, threading, time
from pathlib import Path
from grete.clock import SystemClock
from grete.errors import ConfigError, Fenced
from grete.tasks.commit.base import BatchOutcome
from grete.exit_report import write_report
from grete.container.main_loop import ContainerMainLoop
from grete.container.control import Ended
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack

system = LocalSystem(Path(os.environ["GRETE_HOME"]) / "local", SystemClock())

def work(assignment, control, on_batch):
    deaf = assignment.settings.raw.get("test.deaf") == str(assignment.container_id)
    if assignment.settings.raw.get("test.unfit") == str(assignment.container_id):
        raise ConfigError("test.unfit: this container cannot work with it")
    if assignment.warms_up:
        while not (control.is_set() and is_ready(assignment)):
            time.sleep(0.1)
        return Ended.INTERRUPTED
    system.raise_fence([assignment.fence])
    batch = 0
    while deaf or not control.is_set():
        said = [json.dumps({"task": task.name, "container": assignment.container_id, "epoch": assignment.epoch,
                            "batch": assignment.settings.raw.get("task.max.records.per.batch")}).encode()
                for task in assignment.tasks]
        with_fence(said, assignment.fence)
        batch += 1
        on_batch(batch, BatchOutcome(records=len(said)))
        time.sleep(0.1)
    return Ended.INTERRUPTED

def is_ready(assignment):
    return "test.waits" not in assignment.settings.raw or (Path(os.environ["GRETE_HOME"]) / "ready").exists()

def with_fence(said, fence):
    segment = SegmentWrite("said", 0, len(said), pack([b""] * len(said), said, [0] * len(said)))
    system.commit(CommitGroup([fence], [segment], "", []))

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
code = ContainerMainLoop(os.environ, stop, work).run()
write_report(code)
os._exit(code)
"""
RUNNER = """
import sys
from grete.assembly import RunOptions, run_job
from grete.errors import GreteError
from grete.model.ids import JobId
container, *config = sys.argv[1:]
options = (RunOptions(config_paths=config, container_command=(sys.executable, container)) if config
           else RunOptions(job=JobId.parse("job"), container_command=(sys.executable, container)))
try:
    sys.exit(run_job(options))
except GreteError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""
JOB = JobId("job")


class Job:
    """The job, its coordinator processes, and what its containers said."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self._directory = directory
        self._coordinators: list[subprocess.Popen[str]] = []
        (directory / "container.py").write_text(CONTAINER)
        (directory / "runner.py").write_text(RUNNER)
        with closing(LocalSystem(self.home / "local", SystemClock())) as system:
            system.create_stream(StreamSpec("in", 4))
            system.create_stream(StreamSpec("said", 1))

    def submit(self, *, dies: str = "", **settings: str) -> subprocess.Popen[str]:
        path = self._directory / "job.properties"
        base = {"job.name": "job", "task.class": "x:X", "task.inputs": "local.in", "task.shutdown.ms": "1500"}
        path.write_text("\n".join(f"{key}={value}" for key, value in {**base, **settings}.items()))
        return self.coordinate(str(path), dies=dies)

    def coordinate(self, *config: str, dies: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, str(self._directory / "runner.py"), str(self._directory / "container.py")]
        process = subprocess.Popen(
            [*command, *config],
            env={**os.environ, "GRETE_HOME": str(self.home), **({"GRETE_FAILPOINT": dies} if dies else {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._coordinators.append(process)
        return process

    def said(self) -> list[dict[str, str]]:
        with closing(LocalSystem(self.home / "local", SystemClock())) as system:
            batches = [batch for _, batch in system.read("said", 0, 0)]
            return [json.loads(value) for batch in batches for value in batch.column(1).to_pylist()]

    def last(self) -> dict[str, tuple[str, str]]:
        """The container and epoch that spoke for each task last."""
        return {one["task"]: (one["container"], one["epoch"]) for one in self.said()}

    def events(self) -> list[str]:
        with open_job(JOB) as handle:
            return [row.event for row in handle.history()]

    def eventually(self, condition: Callable[[], object], *, within_s: float = 60) -> None:
        eventually(condition, within_s=within_s, context=lambda: f"{self.events()}\nlast: {self.last()}")

    def set(self, **changes: str) -> None:
        with open_job(JOB) as handle:
            set_config(
                handle, {key.replace("__", "."): value for key, value in changes.items()}, reason="test"
            )

    def end(self) -> None:
        with open_job(JOB) as handle:
            if handle.election.holder() is not None:
                handle.requests.stop(5, "the test is over")
        for process in self._coordinators:
            print(process.communicate(timeout=patient(30))[1])


def container_pids(handle: JobHandle) -> dict[str, int]:
    return {key: int(record.handle.split("/")[1]) for key, record in read_launches(handle.stream).items()}


def spoke_since(job: Job, count: int, tasks: Sequence[str] = ("0", "1", "2", "3")) -> bool:
    return {one["task"] for one in job.said()[count:]} == {f"Partition {task}" for task in tasks}


def turns(job: Job) -> list[int]:
    """How often each task changed hands. Two writers of one task at a time would take turns at every batch."""
    last: dict[str, tuple[str, str]] = {}
    changes: dict[str, int] = {}
    for one in job.said():
        speaker = (one["container"], one["epoch"])
        if last.setdefault(one["task"], speaker) != speaker:
            changes[one["task"]] = changes.get(one["task"], 0) + 1
        last[one["task"]] = speaker
    return list(changes.values())
