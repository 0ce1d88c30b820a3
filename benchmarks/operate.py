"""Waits of an operator, without Spark's part: `python -m benchmarks.operate [TIMES]`.

Coordinators are real processes, containers real ones that commit small records instead of running queries, so what is
measured is the control plane. Spark adds, per container: about 10 s for a process, below 1 s for a query.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from grete.assembly import RunOptions, run_job
from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.model.startpoint import Startpoint, StartpointKind
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.operations.rewind import RewindRequest, execute_rewind, plan_rewind
from grete.systems.local.system import LocalSystem

JOB = JobId("operated")
LEASE_S = 2.0
ADOPTIONS = 50
_POLL_S = 0.005
_RECENT = 1_000


class Operated:
    """A job of four tasks, and what its containers have said."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        os.environ["GRETE_HOME"] = str(home)
        with closing(LocalSystem(home / "local", SystemClock())) as system:
            system.create_stream(StreamSpec("in", 4))
            system.create_stream(StreamSpec("said", 1))
        self.config = home / "operated.properties"
        settings = {
            "job.name": JOB.name,
            "task.class": "x:X",
            "task.inputs": "local.in",
            "job.coordinator.lease.ttl.ms": str(int(LEASE_S * 1000)),
        }
        self.config.write_text("\n".join(f"{key}={value}" for key, value in settings.items()))
        self._system = LocalSystem(home / "local", SystemClock())
        self._next = 0
        self.said: list[list[object]] = []

    def coordinate(self, config: Path | None) -> None:
        words = [] if config is None else [str(config)]
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.operate", "--coordinate", *words])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait()

    def listen(self) -> list[list[object]]:
        """Output since the last call."""
        new = []
        for _, batch in self._system.read("said", 0, self._next):
            new += [json.loads(value) for value in batch.column(1).to_pylist()]
        self._next += len(new)
        self.said += new
        return new

    def until(self, heard: Callable[[list[object]], bool]) -> float:
        """Wait for a record; returns when it was written, wall clock."""
        return self.until_changed(heard)[1]

    def until_changed(self, heard: Callable[[list[object]], bool]) -> tuple[float, float]:
        """Wait for a record; returns when the one of its task before it, and it itself, were written, wall clock."""
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            first = len(self.said)
            for number, one in enumerate(self.listen(), first):
                if heard(one):
                    before = [other for other in self.said[:number][-_RECENT:] if other[0] == one[0]]
                    return float(str((before or [one])[-1][4])), float(str(one[4]))
            time.sleep(_POLL_S)
        raise TimeoutError("nothing was heard")

    def last_word(self) -> float:
        """When the last record of the containers, which have ended, was written."""
        self.listen()
        return float(str(self.said[-1][4]))

    def events(self, event: str) -> int:
        with open_job(JOB) as handle:
            return sum(row.event == event for row in handle.history())

    def until_event(self, event: str, count: int) -> float:
        deadline_s = time.monotonic() + 60
        while self.events(event) < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(event)
            time.sleep(_POLL_S)
        return time.time()

    def set(self, **changes: str) -> float:
        began = time.time()
        with open_job(JOB) as handle:
            set_config(
                handle, {key.replace("__", "."): text for key, text in changes.items()}, reason="bench"
            )
        return began


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"p50_s": round(statistics.median(ordered), 3), "p99_s": round(p99, 3), "n": len(ordered)}


class Spans:
    """Seconds from a request to the moment at which a container reacts, and to that at which it works as asked."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._reaction: list[float] = []
        self._effect: list[float] = []

    def begin(self) -> None:
        self._began_s = time.time()

    def end(self, reacted_s: float, worked_s: float) -> None:
        self._reaction.append(reacted_s - self._began_s)
        self._effect.append(worked_s - self._began_s)

    def figures(self) -> dict[str, dict[str, float]]:
        return {"to reaction": _spread(self._reaction), "to effect": _spread(self._effect)}


def _changes(job: Operated, times: int) -> dict[str, Any]:
    live, process = [], []
    query, moved, to_new = Spans(), Spans(), Spans()
    for i in range(times):
        before = job.events("reconfigured")
        began = job.set(**{"cluster-manager__container__retry__count": str(20 + i)})
        live.append(job.until_event("reconfigured", before + 1) - began)
        size = str(1000 + i)
        query.begin()
        job.set(task__max__records__per__batch=size)
        query.end(*job.until_changed(lambda one, size=size: one[3] == size))  # type: ignore[misc]
        # of four tasks in two containers the last is the second's; in three it is the first's
        for count, owner, spans in (("2", "1", to_new), ("3", "0", moved), ("1", "0", to_new)):
            spans.begin()
            job.set(job__container__count=count)
            spans.end(*job.until_changed(lambda one, owner=owner: one[:2] == ["Partition 3", owner]))  # type: ignore[misc]
        job.until(lambda one: one[0] == "Partition 2" and one[1] == "0")
        epoch = max(int(str(one[2])) for one in job.said[-8:])
        began = job.set(bench__anything=str(i))
        process.append(job.until(lambda one, epoch=epoch: int(str(one[2])) > epoch) - began)  # type: ignore[misc]
    return {
        "live": _spread(live),
        "restart-query": query.figures(),
        "job.container.count, to a container that runs": moved.figures(),
        "job.container.count, to a container that starts or from one that ends": to_new.figures(),
        "restart-container": _spread(process),
    }


def _rewinds(job: Operated, times: int) -> dict[str, dict[str, float]]:
    """As `grete checkpoint rewind --live`. The containers only read their assignments again."""
    spans = Spans()
    for _ in range(times):
        serial = max(int(str(one[5])) for one in job.said[-8:])
        spans.begin()
        with open_job(JOB) as handle:
            plan = plan_rewind(handle, RewindRequest(Startpoint(StartpointKind.OLDEST, 0)))
            execute_rewind(handle, plan, live=True, to="oldest", reason="bench")
        spans.end(*job.until_changed(lambda one, serial=serial: int(str(one[5])) > serial))  # type: ignore[misc]
        job.listen()
    return spans.figures()


def _stops(job: Operated, times: int) -> dict[str, dict[str, float]]:
    """As `grete stop`, to the last commit and to the coordinator's end."""
    spans = Spans()
    for _ in range(times):
        spans.begin()
        with open_job(JOB) as handle:
            handle.requests.stop(5, "bench")
        job.wait()
        ended = time.time()
        spans.end(job.last_word(), ended)
        job.coordinate(None)
        job.until(lambda one: one[0] == "Partition 3")
    return spans.figures()


def _adoptions(job: Operated) -> dict[str, float]:
    """From the kill of a coordinator that is followed at once to the container's adoption."""
    taken = []
    for _ in range(ADOPTIONS):
        before = job.events("container-adopted")
        began = time.time()
        job.kill()
        job.coordinate(None)
        taken.append(job.until_event("container-adopted", before + 1) - began)
    return {**_spread(taken), "lease_s": LEASE_S}


def run(times: int = 10) -> dict[str, object]:
    """Seconds from a request to its effect, and from a coordinator's death to adoption, by what is asked for.

    Of a change that moves no task by itself a container reacts when it has committed for the last time as before.
    """
    with tempfile.TemporaryDirectory() as name:
        job = Operated(Path(name))
        job.coordinate(job.config)
        job.until(lambda one: one[0] == "Partition 3")
        try:
            changes = _changes(job, times)
            rewinds = _rewinds(job, times)
            stops = _stops(job, times)
            adoptions = _adoptions(job)
            job.listen()
            epochs = {int(str(one[2])) for one in job.said[-4:]}
            return {
                "config set to effect": changes,
                "checkpoint rewind": rewinds,
                "stop": stops,
                "adoption": adoptions,
                "epochs at the end": len(epochs),
            }
        finally:
            with open_job(JOB) as handle:
                if handle.election.holder() is not None:
                    handle.requests.stop(5, "done")
            job.wait()


def _coordinate(config: list[str]) -> int:
    command = (sys.executable, "-m", "benchmarks.operated_container")
    options = (
        RunOptions(config_paths=config, container_command=command)
        if config
        else RunOptions(job=JobId.parse(JOB.name), container_command=command)
    )
    return run_job(options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--coordinate"]:
        sys.exit(_coordinate(sys.argv[2:]))
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))
