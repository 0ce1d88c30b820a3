"""Files of stores that stay open from one assignment to the next: most tasks stay where they are when it changes.

To close one and open it again takes 2 ms, for which a container of 1,000 tasks stood still at each change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import apsw

from grete.clock import Clock, SystemClock


class StoreFileKey(NamedTuple):
    """What an open file is of."""

    path: Path
    changelog: str
    is_expiring: bool


class _Idle(NamedTuple):
    connection: apsw.Connection
    stamp: tuple[int, int, int] | None
    since_s: float


class FilesLeftOpen:
    """Verified connections without a transaction. Safe for several threads.

    One that nobody takes for `idle_s` is closed: its task has gone to another process.
    """

    def __init__(self, idle_s: float, clock: Clock | None = None) -> None:
        self._idle_s = idle_s
        self._clock = clock or SystemClock()
        self._of_parent: Mapping[StoreFileKey, _Idle] = {}
        self._lock = threading.Lock()
        self._idle: dict[StoreFileKey, _Idle] = {}
        self._timer: threading.Timer | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a fork: SQLite's locks are the parent's, whose files are neither used nor closed here."""
        self._of_parent, self._idle, self._timer = self._idle, {}, None
        self._lock = threading.Lock()

    def leave(self, key: StoreFileKey, connection: apsw.Connection) -> None:
        """Leave an open file to whoever opens it next."""
        if connection.in_transaction:
            connection.close(True)
            return
        with self._lock:
            before = self._idle.pop(key, None)
            self._idle[key] = _Idle(connection, _stamp(key.path), self._clock.monotonic_s())
            if self._timer is None:
                self._begin_timer()
        if before is not None:
            before.connection.close(True)

    def take(self, key: StoreFileKey) -> apsw.Connection | None:
        """The file, if it was left open, and is still the one at its path, as it was left."""
        with self._lock:
            idle = self._idle.pop(key, None)
        if idle is None:
            return None
        if idle.stamp is None or idle.stamp != _stamp(key.path):
            idle.connection.close(True)
            return None
        return idle.connection

    def _begin_timer(self) -> None:
        self._timer = threading.Timer(self._idle_s, self.close_idle)
        self._timer.daemon, self._timer.name = True, "grete-stores-left-open"
        self._timer.start()

    def close_idle(self) -> None:
        """Close those that were left long enough ago."""
        last_s = self._clock.monotonic_s() - self._idle_s
        with self._lock:
            ended = [key for key, idle in self._idle.items() if idle.since_s <= last_s]
            connections = [self._idle.pop(key).connection for key in ended]
            self._timer = None
            if self._idle:
                self._begin_timer()
        for connection in connections:
            connection.close(True)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Which file is there, and when it was written; of what other processes have written since, it is verified."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
