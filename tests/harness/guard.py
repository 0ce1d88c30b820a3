"""Ends what a run of tests leaves when the run itself is killed.

    python -m tests.harness.guard RUN FOLDER

It lives in a session of its own and reads standard input, which ends when the run does, however that ends. Then it
kills every process of the run and removes the run's folder. A run that ends in order has left it nothing to do.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from tests.harness import processes

_ROUNDS = 5
"""A process that is killed may just have started another one."""


def clean(run: str, folder: Path) -> int:
    """Kill and remove what is there; returns how many processes are left all the same."""
    for _ in range(_ROUNDS):
        left = processes.of_run(run)
        if not left:
            break
        processes.end(left)
    shutil.rmtree(folder, ignore_errors=True)
    return len(processes.of_run(run))


def main() -> int:
    """Wait for the end of the run."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    run, folder = sys.argv[1:]
    sys.stdin.buffer.read()
    return clean(run, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
