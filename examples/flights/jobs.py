"""Runs the demo's two jobs at once, with `grete run` or deployed on a cluster manager, and shows how far they are."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from places import Place

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import read_commits
from grete.cli.progress import ProgressLine
from grete.errors import HeldByOther
from grete.model.ids import JobId
from grete.operations import open_job

_POLL_S = 0.5


class DemoJob:
    """One of the two. A demo that was killed may have left it running: that run is waited for, then it goes on."""

    def __init__(self, name: str, place: Place, flights: int) -> None:
        self.name = name
        self.exit_code: int | None = None
        self._place = place
        self._flights = flights
        self._has_waited = False
        self._process: subprocess.Popen[bytes] | None = None

    def step(self) -> None:
        """Start it when it does not run, notice when it has ended."""
        if self.exit_code is not None:
            return
        if self._process is None:
            self._start_if_free()
            return
        code = self._process.poll()
        if code == HeldByOther.exit_code:
            self._process = None
        elif code is not None:
            self.exit_code = code

    def _start_if_free(self) -> None:
        settings = self._place.settings_of(self.name)
        with open_job(JobId(self.name), settings, must_exist=False) as handle:
            if handle.election.holder() is not None:
                self._has_waited = True
                return
        if self._has_waited and self.covered() == self._flights:
            self.exit_code = 0
            return
        command = [sys.executable, "-m", "grete.cli.main", "run", "--until-drained", "--quiet"]
        if self._place.is_deployed:
            command = [sys.executable, str(Path(__file__).with_name("deployed.py"))]
        self._process = subprocess.Popen(
            [*command, *self._place.words(self.name)],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C reaches the demo, which passes it on once
        )

    def terminate(self) -> None:
        """Ask it to end at a batch boundary; asked again it ends at once."""
        if self._process is not None:
            self._process.terminate()

    def covered(self) -> int:
        """How many input records its checkpoints cover."""
        log = self._place.system.checkpoint_log(checkpoint_log_name(JobId(self.name)))
        commits = read_commits(log.read())
        return sum(int(offset) + 1 for commit in commits.values() for offset in commit.offsets.values())


def run_all(jobs: Sequence[DemoJob], flights: int, progress: ProgressLine) -> int:
    """Run all until they are drained; returns the worst exit code."""
    with _signals_passed_on(jobs):
        while any(job.exit_code is None for job in jobs):
            for job in jobs:
                job.step()
            progress.show(_line(jobs, flights))
            time.sleep(_POLL_S)
    progress.end(_line(jobs, flights))
    return max((job.exit_code or 0 for job in jobs), key=abs)


def _line(jobs: Sequence[DemoJob], flights: int) -> str:
    return "  " + ", ".join(f"{job.name} {job.covered():,} of {flights:,}" for job in jobs)


@contextmanager
def _signals_passed_on(jobs: Sequence[DemoJob]) -> Iterator[None]:
    """The first Ctrl-C lets the jobs end at a batch boundary, the second ends them at once."""

    def on_signal(number: int, _: Any) -> None:
        for job in jobs:
            job.terminate()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
