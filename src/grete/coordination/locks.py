"""Locks of the operating system as signs of life: the kernel gives them back the moment their process dies.

Each incarnation locks a file of its own, named after it. So a lock is about one incarnation only, and
a process that takes over from a stopped one does not have to wait for its lock.
"""

from __future__ import annotations

import fcntl
import os
import re
from enum import Enum
from pathlib import Path


class Life(Enum):
    """An incarnation as its lock file shows it."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"  # the file is gone: removed by hand, or not copied along with the store


class LifeLocks:
    """The lock files of a directory. A program that is started does not inherit them (close on exec); a child
    that is only forked does, and must not outlive us."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}

    def hold(self, scope: str, incarnation: str) -> None:
        """Show that we live, until `drop` or the end of this process."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(scope, incarnation)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # the name is not public yet: never waits
        self._held[incarnation] = descriptor

    def drop(self, scope: str, incarnation: str) -> None:
        """Take the file away, then the lock."""
        self.forget(scope, incarnation)
        descriptor = self._held.pop(incarnation, None)
        if descriptor is not None:
            os.close(descriptor)

    def forget(self, scope: str, incarnation: str) -> None:
        """Remove the file of an incarnation that is over."""
        self._path(scope, incarnation).unlink(missing_ok=True)

    def life(self, scope: str, incarnation: str) -> Life:
        """Whether the incarnation's process lives."""
        if incarnation in self._held:
            return Life.ALIVE
        try:
            descriptor = os.open(self._path(scope, incarnation), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return Life.UNKNOWN
        try:
            # shared: two who look at the same time must not take each other for the holder
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Life.ALIVE
        finally:
            os.close(descriptor)
        return Life.DEAD

    def close(self) -> None:
        """Give every lock back; the files stay and say that their incarnations are over."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _path(self, scope: str, incarnation: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", scope)[:100]
        return self._directory / f"{readable}.{incarnation}.lock"
