"""Deploys one job of the demo on a cluster manager, waits until it has ended, and takes the deployment away.

    python deployed.py --config FILE ... --set KEY=VALUE ...

SIGTERM stops the job at a batch boundary. The exit code is 0 when it has finished or was stopped.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from grete.config.load import load, parse_overrides
from grete.config.settings import Settings
from grete.metadata.job_state import JobState
from grete.operations import open_job

_POLL_S, _LOOK_S = 0.5, 5.0
_STOP_S = 30.0


class Deployed:
    """One job; `words` are the arguments that name its configuration."""

    def __init__(self, words: Sequence[str], settings: Settings) -> None:
        self._words = words
        self._settings = settings
        self._job = settings.job.id
        self._before = self._state()

    def apply(self) -> int:
        return subprocess.run(self._command("apply", "--until-drained"), stdout=subprocess.DEVNULL).returncode

    def kill(self) -> None:
        subprocess.run(self._command("kill"), stdout=subprocess.DEVNULL)

    def is_live(self) -> bool:
        done = subprocess.run(self._command("status"), stdout=subprocess.PIPE, text=True)
        return done.returncode != 0 or any(one["live"] for one in json.loads(done.stdout))

    def _command(self, *which: str) -> list[str]:
        return [sys.executable, "-m", "grete.cli.main", "deploy", *which, *self._words, "-o", "json"]

    def _state(self) -> JobState | None:
        with open_job(self._job, self._settings, must_exist=False) as handle:
            return handle.state()

    def end(self) -> str | None:
        """How this deployment of the job has ended; None while it goes on."""
        state = self._state()
        is_new = state is not None and (self._before is None or state.epoch > self._before.epoch)
        return state.state if state is not None and is_new and state.is_terminal else None

    def stop(self) -> None:
        with open_job(self._job, self._settings) as handle:
            handle.requests.stop(_STOP_S, "the demo was interrupted")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", action="append", required=True)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args(words)
    job = Deployed(words, Settings.of(load(given.config, parse_overrides(given.set))))
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    code = job.apply()
    if code == 0:
        code = wait(job, asked)
        job.kill()
    return code


def wait(job: Deployed, asked: list[int]) -> int:
    look_s = time.monotonic() + _LOOK_S
    while (end := job.end()) is None:
        time.sleep(_POLL_S)
        if asked:
            asked.clear()
            job.stop()
        if time.monotonic() >= look_s:
            look_s = time.monotonic() + _LOOK_S
            if not job.is_live() and job.end() is None:
                print("the deployment has ended and the job has not: grete deploy status", file=sys.stderr)
                return 1
    return int(end == "failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
