"""Leadership in a SQLite file, for processes of one machine.

Two signs of life: an operating system lock on a file of the holder's own, which the kernel gives back the moment
the holder dies, so a killed job starts again at once; and a renewal counter, for a holder that hangs: a
contender that sees it unchanged for a whole TTL on its own clock may take over. Without the lock file only the
counter shows it.

The epoch grows in the transaction that writes the new holder, and the same transaction raises the scope's fence in
this file. It is above everything that the leadership row, the fence and the caller have seen, so that losing the
row, the fence or the lock file never brings an old epoch back.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import apsw
import orjson

from grete.clock import Clock
from grete.coordination.base import Coordination, Holder, Leadership, Look
from grete.coordination.cells import Cells
from grete.coordination.factory import CoordinationContext
from grete.coordination.locks import Life, LifeLocks
from grete.coordination.patience import Patience
from grete.coordination.sqlite_cells import SqliteCells
from grete.errors import HeldByOther, LeadershipLost, LogCorrupted
from grete.failpoints import failpoint
from grete.keyed_log.sqlite_coordinator_log import coordinator_file
from grete.sqlite_file import SqliteFile, open_file, seen_epoch

_SCHEMA = """
CREATE TABLE IF NOT EXISTS leaderships (
  scope TEXT PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT, renewals INTEGER NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class _SqliteRow:
    """`holder` is None once the leadership was released."""

    epoch: int
    holder: Holder | None
    renewals: int


def open_coordination(context: CoordinationContext) -> SqliteCoordination:
    """In the file of the coordinator streams, or the home's own when those are elsewhere."""
    path = coordinator_file(context.settings, context.home)
    return SqliteCoordination(
        open_file(path), path.parent / "locks", context.clock, ttl_s=context.ttl_s, owns_file=True
    )


class SqliteCoordination(Coordination):
    """Leader election over a file and a directory of lock files. Calls wait a sixth of the TTL for the file."""

    def __init__(
        self,
        file: SqliteFile,
        locks_directory: Path,
        clock: Clock,
        *,
        ttl_s: float = 15.0,
        owns_file: bool = False,
    ) -> None:
        """Closing it leaves the file open for its other users, unless it `owns_file`."""
        self._file = file
        self._owns_file = owns_file
        self._locks = LifeLocks(locks_directory)
        self._clock = clock
        self._patience = Patience(clock, ttl_s=ttl_s)
        self._timeout_s = ttl_s / 6
        file.ensure_schema("leaderships", _SCHEMA)

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination."""
        asked_s = self._clock.monotonic_s()
        before = self._row(scope)
        if before is not None and before.holder is not None and not take_over:
            self._refuse_if_living(scope, before, before.holder)
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, self._clock.wall_ms())
        self._locks.hold(
            scope, me.incarnation
        )  # before the row names us: a row without a lock looks like a loss
        failpoint("leader.locked")
        try:
            epoch = self._file.urgently(
                lambda connection: _elect(connection, scope, before, me, take_over, epoch_floor),
                busy_timeout_s=self._timeout_s,
            )
        except BaseException:
            self._locks.drop(scope, me.incarnation)
            raise
        if before is not None and before.holder is not None:
            self._locks.drop(scope, before.holder.incarnation)
        return Leadership(scope, epoch, me.incarnation, self._patience.until_s(asked_s))

    def _refuse_if_living(self, scope: str, row: _SqliteRow, holder: Holder) -> None:
        life = self._locks.life(scope, holder.incarnation)
        if life is Life.DEAD or self._patience.is_over(scope, holder.incarnation, row.renewals):
            return
        may_be_dead = life is Life.UNKNOWN and not self._patience.has_moved(scope)
        raise HeldByOther(scope, holder.described(), may_be_dead=may_be_dead)

    def _row(self, scope: str) -> _SqliteRow | None:
        with self._file.reading() as connection:
            return _row_in(connection, scope)

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination."""
        asked_s = self._clock.monotonic_s()
        is_ours = self._file.urgently(
            lambda connection: _renew(connection, leadership), busy_timeout_s=self._timeout_s
        )
        if not is_ours:
            self._locks.drop(leadership.scope, leadership.incarnation)
            return None
        return replace(leadership, valid_until_s=self._patience.until_s(asked_s))

    def release(self, leadership: Leadership) -> None:
        """See Coordination."""
        self._file.urgently(
            lambda connection: _release(connection, leadership), busy_timeout_s=self._timeout_s
        )
        failpoint("leader.released")
        self._locks.drop(leadership.scope, leadership.incarnation)

    def forget(self, leadership: Leadership) -> None:
        """See Coordination. The fence of the scope stays in the file."""
        self._file.urgently(
            lambda connection: _forget(connection, leadership), busy_timeout_s=self._timeout_s
        )
        self._locks.drop(leadership.scope, leadership.incarnation)
        self.cells(leadership.scope).clear()

    def holder(self, scope: str) -> Holder | None:
        """See Coordination."""
        row = self._held(scope)
        return None if row is None else row.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination."""
        return self.look(scope).epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination."""
        return self.look(scope).is_silent

    def look(self, scope: str) -> Look:
        """See Coordination."""
        row = self._held(scope)
        if row is None or row.holder is None:
            return Look(None, False)
        return Look(row.epoch, self._patience.is_over(scope, row.holder.incarnation, row.renewals))

    def _held(self, scope: str) -> _SqliteRow | None:
        row = self._row(scope)
        if row is None or row.holder is None:
            return None
        return None if self._locks.life(scope, row.holder.incarnation) is Life.DEAD else row

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return SqliteCells(self._file, scope, timeout_s=self._timeout_s)

    def close(self) -> None:
        """See Coordination."""
        self._locks.close()
        if self._owns_file:
            self._file.close()


def _elect(
    connection: apsw.Connection,
    scope: str,
    before: _SqliteRow | None,
    me: Holder,
    take_over: bool,
    epoch_floor: int,
) -> int:
    """Write the new holder, unless a holder was elected or renewed since `before` was read; returns the epoch."""
    now = _row_in(connection, scope)
    if now is not None and now.holder is not None and now != before and not take_over:
        raise HeldByOther(scope, now.holder.described())
    epoch = 1 + max(0 if now is None else now.epoch, seen_epoch(connection, scope) or 0, epoch_floor)
    connection.execute(
        "INSERT OR REPLACE INTO leaderships VALUES (?, ?, ?, 0)",
        (scope, epoch, orjson.dumps(asdict(me)).decode()),
    )
    failpoint("leader.elected")
    return epoch


def _is_held(connection: apsw.Connection, leadership: Leadership) -> bool:
    row = _row_in(connection, leadership.scope)
    return row is not None and row.holder is not None and row.holder.incarnation == leadership.incarnation


def _release(connection: apsw.Connection, leadership: Leadership) -> None:
    if _is_held(connection, leadership):
        connection.execute(
            "UPDATE leaderships SET holder = NULL WHERE scope = ?", (leadership.scope,)
        ).fetchall()


def _forget(connection: apsw.Connection, leadership: Leadership) -> None:
    if not _is_held(connection, leadership):
        raise LeadershipLost(f"{leadership.scope} is led by another process: it is not forgotten")
    connection.execute("DELETE FROM leaderships WHERE scope = ?", (leadership.scope,)).fetchall()


def _renew(connection: apsw.Connection, leadership: Leadership) -> bool:
    """Count a renewal, unless the leadership is over."""
    if not _is_held(connection, leadership):
        return False
    if (seen_epoch(connection, leadership.scope) or 0) > leadership.epoch:
        return False
    connection.execute(
        "UPDATE leaderships SET renewals = renewals + 1 WHERE scope = ?", (leadership.scope,)
    ).fetchall()
    return True


def _row_in(connection: apsw.Connection, scope: str) -> _SqliteRow | None:
    row = connection.execute(
        "SELECT epoch, holder, renewals FROM leaderships WHERE scope = ?", (scope,)
    ).fetchone()
    if row is None:
        return None
    try:
        holder = None if row[1] is None else Holder(**orjson.loads(row[1]))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise LogCorrupted(
            f"{connection.filename}: the leadership of {scope!r} is damaged; delete its row to elect again"
        ) from error
    return _SqliteRow(row[0], holder, row[2])
