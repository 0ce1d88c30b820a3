"""The job of a trial, shared by stream processors in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from grete.config.properties import parse_properties
from grete.operations import open_job
from grete.operations.job_handle import JobHandle
from grete.testing.chaos.own_job import OwnJob
from grete.testing.waiting import eventually, patient

_DEBOUNCE_MS = 500
_STOP_S = 30.0


class OwnProcessors(OwnJob):
    """Each process that `start` and `stand_by` of it start is a processor."""

    def _coordinate(self, *which: str) -> subprocess.Popen[bytes]:
        config = self.home / "processors.json"
        said = parse_properties(self._config.read_text(encoding="ascii"), origin=str(self._config))
        config.write_text(json.dumps({**said, "job.debounce.time.ms": str(_DEBOUNCE_MS)}))
        id = f"p{len(self._coordinators)}"
        command = [sys.executable, "-m", "grete_workbench.processor_process", str(config), id]
        environment = {**os.environ, "GRETE_HOME": str(self.home)}
        return subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)  # noqa: S603

    def stop(self) -> int:
        """As an operator does, which ends all processors; the highest of their exit codes."""
        with open_job(self.job) as handle:
            handle.requests.stop(_STOP_S, "the trial is over")
        living = [each for each in self._coordinators if each.poll() is None]
        return max(each.wait(patient(120)) for each in living)

    def wait_until_shared(self, handle: JobHandle) -> None:
        """Until every living processor has tasks."""
        living = sum(each.poll() is None for each in self._coordinators)
        eventually(
            lambda: len(set(handle.assignments().values())) == living, f"{living} processors share the job"
        )

    def seconds_until_processing(self, handle: JobHandle) -> float:
        """Until every task has committed since the call; records are to come in meanwhile."""
        began_s, before = time.monotonic(), handle.checkpoints.read()

        def all_go_on() -> bool:
            now = handle.checkpoints.read()
            return all(now[task].offsets != commit.offsets for task, commit in before.items())

        eventually(all_go_on, "every task processes")
        return time.monotonic() - began_s
