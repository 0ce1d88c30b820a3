"""The turnstile before a file's write lock: a process that has just written queues behind those that wait.

SQLite's lock has no queue. A writer in a loop takes it again within 20 µs of its commit, while the others look once
a millisecond: of eight writers one did half the appends and another 11 in five seconds. Here the process whose
turn is next holds a lock on `<file>.queue` until it has the write lock, so the one before can not overtake it.

A process that met a queue lately pauses before it tries again, so that all draw the same lots.

Only fairness depends on it. The kernel gives the lock back when a process dies, and no process waits longer than a
second for one that is stopped at the turnstile.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_WAIT_S = 1.0
_PAUSE_S = (0.0002, 0.001)
_REMEMBERED_S = 0.1


class Turnstile:
    """For one process; its threads take turns elsewhere."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.queue")
        self._descriptor: int | None = None
        self._queue_seen_s = float("-inf")

    @contextmanager
    def passing(self, timeout_s: float) -> Iterator[None]:
        """Be the next one, for as long as it takes to get the write lock."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        has_turn = self._wait(self._descriptor, time.monotonic() + min(timeout_s, _LONGEST_WAIT_S))
        try:
            yield
        finally:
            if has_turn:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _wait(self, descriptor: int, deadline_s: float) -> bool:
        if time.monotonic() < self._queue_seen_s + _REMEMBERED_S:
            _pause()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                self._queue_seen_s = time.monotonic()
                if self._queue_seen_s >= deadline_s:
                    return False
                _pause()

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _pause() -> None:
    time.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 # jitter, no secret
