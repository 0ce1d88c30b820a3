"""Leadership in a SQLite file, for processes of one machine.

Two signs of life: an operating system lock on a file, which the kernel gives back the moment the holder dies, so a
killed job starts again at once; and a renewal counter, for a holder that hangs: whoever sees it unchanged for a
whole TTL on its own clock may take over. The epoch grows in the same transaction that writes the new holder.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import uuid
from pathlib import Path

import apsw
import orjson

from grete.clock import Clock
from grete.coordination.base import Coordination, Holder, Leadership
from grete.errors import HeldByOther
from grete.sqlite_file import SqliteFile

_SCHEMA = """
CREATE TABLE IF NOT EXISTS leadership (
  scope TEXT PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT NOT NULL, renewals INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteCoordination(Coordination):
    """Leader election over a file and a directory of lock files."""

    def __init__(self, file: SqliteFile, locks_directory: Path, clock: Clock, *, ttl_s: float = 15.0) -> None:
        self._file = file
        self._locks_directory = locks_directory
        self._clock = clock
        self._ttl_s = ttl_s
        self._locks: dict[str, int] = {}
        self._seen: dict[str, tuple[int, int, float]] = {}
        with file.transaction() as connection:
            connection.execute(_SCHEMA)

    def campaign(self, scope: str, *, take_over: bool = False) -> Leadership:
        """See Coordination."""
        asked_s = self._clock.monotonic_s()
        alive = not self._lock(scope)
        if alive and not take_over and not self._has_hung(scope):
            holder = self._row(scope)
            raise HeldByOther(scope, "another process" if holder is None else str(holder[2]))
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, self._clock.wall_ms())
        document = orjson.dumps({name: getattr(me, name) for name in Holder.__slots__}).decode()
        with self._file.transaction() as connection:
            epoch = max(_epoch_in(connection, scope), _fence_in(connection, scope)) + 1
            connection.execute(
                "INSERT OR REPLACE INTO leadership VALUES (?, ?, ?, 0)", (scope, epoch, document)
            )
        return Leadership(scope, epoch, me.incarnation, asked_s + self._ttl_s * 2 / 3)

    def _lock(self, scope: str) -> bool:
        """Take the scope's file lock; False when another living process has it."""
        if scope in self._locks:
            return True
        self._locks_directory.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", scope) + ".lock"
        descriptor = os.open(self._locks_directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._locks[scope] = descriptor
        return True

    def _has_hung(self, scope: str) -> bool:
        """Whether the renewal counter has stood still for a TTL since we first saw it."""
        row = self._row(scope)
        if row is None:
            return False
        now_s = self._clock.monotonic_s()
        seen = self._seen.get(scope)
        if seen is None or seen[:2] != (row[0], row[1]):
            self._seen[scope] = (row[0], row[1], now_s)
            return False
        return now_s - seen[2] >= self._ttl_s

    def _row(self, scope: str) -> tuple[int, int, Holder] | None:
        """(epoch, renewals, holder)."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT epoch, renewals, holder FROM leadership WHERE scope = ?", (scope,)
            ).fetchone()
        return None if row is None or not row[2] else (row[0], row[1], Holder(**orjson.loads(row[2])))

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination."""
        asked_s = self._clock.monotonic_s()
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE leadership SET renewals = renewals + 1 WHERE scope = ? AND epoch = ?",
                (leadership.scope, leadership.epoch),
            )
            if connection.changes() == 0:
                return None
        self._lock(leadership.scope)  # after a take-over the old holder's lock becomes free when it ends
        until_s = asked_s + self._ttl_s * 2 / 3
        return Leadership(leadership.scope, leadership.epoch, leadership.incarnation, until_s)

    def release(self, leadership: Leadership) -> None:
        """See Coordination."""
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE leadership SET holder = '' WHERE scope = ? AND epoch = ?",
                (leadership.scope, leadership.epoch),
            )
        self._unlock(leadership.scope)

    def _unlock(self, scope: str) -> None:
        descriptor = self._locks.pop(scope, None)
        if descriptor is not None:
            os.close(descriptor)

    def holder(self, scope: str) -> Holder | None:
        """See Coordination."""
        if scope not in self._locks and self._lock(scope):
            self._unlock(scope)
            return None
        row = self._row(scope)
        return None if row is None else row[2]

    def close(self) -> None:
        """See Coordination."""
        for scope in list(self._locks):
            self._unlock(scope)


def _epoch_in(connection: apsw.Connection, scope: str) -> int:
    row = connection.execute("SELECT epoch FROM leadership WHERE scope = ?", (scope,)).fetchone()
    return 0 if row is None else int(row[0])


def _fence_in(connection: apsw.Connection, scope: str) -> int:
    """The floor: what the scope's fence has seen, should the leadership row ever be lost."""
    row = connection.execute("SELECT epoch FROM fences WHERE scope = ?", (scope,)).fetchone()
    return 0 if row is None else int(row[0])
