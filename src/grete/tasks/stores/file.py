"""A task's store on the executor's disk: a cache of its changelog, never the truth.

The file's base is always a proven prefix of the changelog, up to `position`. What the running batch changed is
kept as one *pending* blob with the attempt's token; the next batch brings the token that was committed, and only
then does the blob become part of the base. So a file of a failed attempt, of an older container or of another
machine can be behind or carry unproven changes, but it can never hold a wrong value:

    position = committed                          use it
    pending's token = committed, not beyond it    apply pending, then catch up with what came after it, if anything
    position < committed, same changelog          catch up from the changelog
    position < what is compacted                  rebuild: a tombstone that it has not seen may be gone
    anything else (foreign, ahead, damaged)       rebuild from the changelog's start

Where entries expire, values are stamped with their times (`grete.application.expiry`), here and in what is read of
the changelog. Expired rows are deleted from the base, a bounded number at a time: nobody sees them any more.

Each row carries a CRC-32, checked when it is read, and all rows are checked when a process first opens the file:
SQLite by itself does not notice a flipped bit inside a value. synchronous=NORMAL is enough, since losing the last
transactions only makes the file older.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from grete.application.expiry import STAMP_BYTES, oldest_living
from grete.clock import SystemClock
from grete.errors import OffsetOutOfRange
from grete.failpoints import failpoint
from grete.private_files import private_directory, tighten_database
from grete.systems.base import Change, System
from grete.systems.records import unpack_changes
from grete.tasks.faults import FILE_ERRORS, file_error
from grete.tasks.stores.damage import (
    DAMAGE,
    WRONG_ROW,
    DamagedStore,
    checked_rows,
    checksum,
    fault,
    faults_translated,
)
from grete.tasks.stores.left_open import FilesLeftOpen, StoreFileKey
from grete.tasks.stores.restoring import Restoring

T = TypeVar("T")
ReadChanges = Callable[[int, int], Iterable[Change]]
"""Changelog records with start <= offset < end, in order; OffsetOutOfRange, at the end at the latest, when compaction
has taken some that a copy at `start` needs."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (
  id INTEGER PRIMARY KEY CHECK (id = 0), changelog TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS copied (id INTEGER PRIMARY KEY CHECK (id = 0), wall_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL, c INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
  id INTEGER PRIMARY KEY CHECK (id = 0), token TEXT NOT NULL, position INTEGER NOT NULL, crc INTEGER NOT NULL,
  changes BLOB NOT NULL);
"""
_WRITTEN = f"substr(v, 1, {STAMP_BYTES})"
_EXPIRING_SCHEMA = f"CREATE INDEX IF NOT EXISTS kv_written ON kv ({_WRITTEN});"
_EXPIRED = f"SELECT k FROM kv WHERE {_WRITTEN} < ? LIMIT ?"  # noqa: S608 - a constant
_EXPIRED_AT_ONCE = 10_000
"""So many rows are deleted in a fifth of a second, in which the task does nothing else; others wait for its next
batch."""
_EXPIRY_LOOK_MS = 1_000
_PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA cache_size=-16384"
_UNSYNCED, _SYNCED = "PRAGMA synchronous=OFF", "PRAGMA synchronous=NORMAL"
_CLOCK = SystemClock()
_CHUNK = 4096
_NOTE_TIME_MS = 600_000
"""How often a copy that nothing changes is said to be good still: a write each time."""
_BUSY_TIMEOUT_MS = 5_000
_REBUILD_ATTEMPTS = 5
"""A changelog may be compacted while it is read; that takes a second or two, and then nothing for a while."""


class StoreFile:
    """One open file. Used by one thread; other processes may open the same file."""

    def __init__(
        self,
        path: Path,
        changelog: str,
        *,
        refill: Callable[[], object] = lambda: None,
        restoring: Restoring | None = None,
        now_ms: Callable[[], int] = _CLOCK.wall_ms,
        busy_timeout_ms: int = _BUSY_TIMEOUT_MS,
        ttl_ms: int | None = None,
        left_open: FilesLeftOpen | None = None,
    ) -> None:
        """`refill` may put a file of the same changelog in the place of one that is missing or unusable.

        `restoring` learns of what is read from the changelog. With `ttl_ms` values are stamped, and older ones go.
        What `leave` has left in `left_open` is not opened again.
        """
        self._ttl_ms = ttl_ms
        self._expiry_looked_ms = 0
        self._restoring = restoring or Restoring(path.stem)
        self._now_ms = now_ms
        self._noted_ms = 0
        self._path = path
        self._changelog = changelog
        self._refill = refill
        self._busy_timeout_ms = busy_timeout_ms
        self._left_open = left_open
        self._connection = self._taken() or self._open()
        self._settled: tuple[int, ReadChanges] = (0, lambda start, end: ())

    @property
    def _key(self) -> StoreFileKey:
        return StoreFileKey(self._path, self._changelog, self._ttl_ms is not None)

    def _taken(self) -> apsw.Connection | None:
        return None if self._left_open is None else self._left_open.take(self._key)

    def _open(self) -> apsw.Connection:
        private_directory(self._path.parent)
        for needs_refill in (not self._path.exists(), True):
            if needs_refill:
                self._refill()
            try:
                connection = self._connect()
                with faults_translated(self._path, "read"):
                    self._verify(connection)
                return connection
            except DAMAGE as error:
                self._restoring.begins_anew(error)
                self._discard()
        return self._connect()

    def _connect(self) -> apsw.Connection:
        with faults_translated(self._path, "open"):
            return self._connected()

    def _connected(self) -> apsw.Connection:
        is_new = not self._path.exists()
        connection = apsw.Connection(str(self._path))
        tighten_database(self._path)
        try:
            connection.set_busy_timeout(self._busy_timeout_ms)
            # a statement that gives rows stops there: those after it run only when the rows are fetched
            # half of a file without rows is no loss, and each of four waits for the disk would be one for 1,000 tasks
            connection.execute(_UNSYNCED if is_new else _SYNCED)
            connection.execute(_PRAGMAS).fetchall()
            connection.execute(_SCHEMA)
            if self._ttl_ms is not None:
                connection.execute(_EXPIRING_SCHEMA)
            failpoint("store.created")
            connection.execute("INSERT OR IGNORE INTO meta VALUES (0, ?, 0)", (self._changelog,))
            connection.execute(_SYNCED)
        except apsw.Error:
            connection.close(True)
            raise
        return connection

    def _verify(self, connection: apsw.Connection) -> None:
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchall()
            if found != [("ok",)]:
                raise DamagedStore(str(found))
            (changelog,) = connection.execute("SELECT changelog FROM meta").fetchone() or (None,)
            if changelog != self._changelog:
                raise DamagedStore(f"filled from {changelog}")
            for key, value, written in connection.execute("SELECT k, v, c FROM kv"):
                if checksum(key, value) != written:
                    raise DamagedStore(WRONG_ROW)
        except (*DAMAGE, TypeError, ValueError) as error:
            connection.close(True)
            raise DamagedStore(f"{self._path}: {error}") from error
        except apsw.Error:
            connection.close(True)
            raise

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        self._connection.close(True)

    def leave(self) -> None:
        """Leave the file open to the next who has the same `left_open`; close it where there is none."""
        if self._left_open is None:
            self.close()
        else:
            self._left_open.leave(self._key, self._connection)

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    @property
    def position(self) -> int:
        """The changelog offset up to which (exclusive) the base holds everything."""
        (position,) = self._connection.execute("SELECT position FROM meta").fetchone() or (0,)
        return int(position)

    def follow(self, system: System, stream: str, partition: int, position: int, token: str = "") -> None:
        """As `settle`, by a partition of the changelog's stream."""
        has_times = self._ttl_ms is not None

        def changes(start: int, end: int) -> Iterator[Change]:
            place = (stream, partition, start, end)
            return system.changes(*place, copied_ms=self.copied_ms, has_times=has_times)

        self.settle(position, token, changes, partial(unpack_changes, has_times=has_times))

    def settle(self, position: int, token: str, read_changes: ReadChanges, unpack: Unpack) -> None:
        """Bring the base to exactly `position`, applying pending changes only if `token` proves them."""
        self._settled = (position, read_changes)
        try:
            with faults_translated(self._path, "bring up to date"):
                self._settle(position, token, read_changes, unpack)
                if self._ttl_ms is not None:
                    self._delete_expired(self._ttl_ms)
        except (*DAMAGE, OffsetOutOfRange) as error:
            self._restoring.begins_anew(error)
            self.rebuild()

    def _settle(self, position: int, token: str, read_changes: ReadChanges, unpack: Unpack) -> None:
        known = self._connection.execute(
            "SELECT position, (SELECT count(*) FROM pending) FROM meta"
        ).fetchone()
        if known == (position, 0):
            self._note_time(at_least_ms=_NOTE_TIME_MS)
            return
        with self._transaction():
            failpoint("store.settling")
            # read in here: a successor may have settled the file while we waited for it, further than we know of
            pending = self._connection.execute("SELECT token, position, crc, changes FROM pending").fetchone()
            base = self.position
            if base > position:
                raise DamagedStore(f"at {base}, committed is {position}")
            if pending is not None and pending[0] == token and base < pending[1] <= position:
                if zlib.crc32(pending[3]) != pending[2]:
                    raise DamagedStore("pending changes")
                self._apply(unpack(pending[3]))
                base = int(pending[1])
            if base < position:
                self._read(read_changes, base, position)
            failpoint("store.applied")
            self._connection.execute("DELETE FROM pending")
            self._connection.execute("UPDATE meta SET position = ?", (position,))
            self._note_time()
        failpoint("store.settled")

    def _delete_expired(self, ttl_ms: int) -> None:
        now_ms = self._now_ms()
        if 0 <= now_ms - self._expiry_looked_ms < _EXPIRY_LOOK_MS:
            return
        bound = oldest_living(ttl_ms, now_ms)
        expired = self._connection.execute(_EXPIRED, (bound, _EXPIRED_AT_ONCE)).fetchall()
        if expired:
            with self._transaction():
                self._connection.executemany("DELETE FROM kv WHERE k = ?", expired)
        if len(expired) < _EXPIRED_AT_ONCE:
            self._expiry_looked_ms = now_ms

    @property
    def copied_ms(self) -> int:
        """When the base was known to be the state at its position, by this machine's wall clock; 0 is never."""
        (wall_ms,) = self._connection.execute("SELECT wall_ms FROM copied").fetchone() or (0,)
        return int(wall_ms)

    def _note_time(self, *, at_least_ms: int = 0) -> None:
        now_ms = self._now_ms()
        if now_ms - self._noted_ms >= at_least_ms:
            self._connection.execute("INSERT OR REPLACE INTO copied VALUES (0, ?)", (now_ms,))
            self._noted_ms = now_ms

    def rebuild(self) -> None:
        """Throw the file away and fill it from the changelog's start, up to where it was settled last."""
        self._connection.close(True)
        self._discard()
        failpoint("store.rebuilding")
        self._connection = self._connect()
        with faults_translated(self._path, "rebuild"):
            self._fill()

    def _fill(self) -> None:
        position, read_changes = self._settled
        for attempt in range(_REBUILD_ATTEMPTS):
            try:
                with self._transaction():
                    self._read(read_changes, 0, position)
                    failpoint("store.refilled")
                    self._connection.execute("UPDATE meta SET position = ?", (position,))
                    self._note_time()
                return
            except OffsetOutOfRange:
                if attempt == _REBUILD_ATTEMPTS - 1:
                    raise

    def _read(self, read_changes: ReadChanges, start: int, end: int) -> None:
        with self._restoring.noted(read_changes(start, end), start, end) as changes:
            self._apply(changes)

    def _apply(self, changes: Iterable[Change]) -> None:
        """Write changes to the base, the last of each key winning, a bounded number at a time."""
        latest: dict[bytes, bytes | None] = {}
        for key, value in changes:
            latest[key] = value
            if len(latest) >= 100_000:
                self._write(latest)
                latest = {}
        self._write(latest)

    def _write(self, latest: dict[bytes, bytes | None]) -> None:
        crc32 = zlib.crc32
        puts = ((k, v, crc32(v, crc32(k))) for k, v in sorted(latest.items()) if v is not None)
        self._connection.executemany("INSERT OR REPLACE INTO kv VALUES (?, ?, ?)", puts)
        deletes = [(k,) for k, v in latest.items() if v is None]
        if deletes:
            self._connection.executemany("DELETE FROM kv WHERE k = ?", deletes)

    def set_pending(self, token: str, position: int, changes: bytes) -> None:
        """Remember the running batch's changes; `position` is where the changelog ends once they are committed."""
        failpoint("store.before-pending")
        with faults_translated(self._path, "keep the batch's changes in"), self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO pending VALUES (0, ?, ?, ?, ?)",
                (token, position, zlib.crc32(changes), changes),
            )
            failpoint("store.pending-written")
        failpoint("store.after-pending")

    def get(self, key: bytes) -> bytes | None:
        """The base's value. Damage that shows only now leads to a rebuild, not to an error or a wrong value."""
        try:
            return self._get(key)
        except DAMAGE as error:
            return self._rebuilt(error, lambda: self._get(key))
        except apsw.Error as error:
            raise fault(error, self._path, "read") from error

    def _rebuilt(self, why: Exception, read: Callable[[], T]) -> T:
        """What is read after a rebuild; what hinders it is the machine's."""
        self._restoring.begins_anew(why)
        try:
            self.rebuild()
            return read()
        except FILE_ERRORS as error:
            raise file_error(f"the store's file {self._path}", error) from error

    def _get(self, key: bytes) -> bytes | None:
        row = self._connection.execute("SELECT v, c FROM kv WHERE k = ?", (key,)).fetchone()
        if row is None:
            return None
        value, written = row
        if checksum(key, value) != written:
            raise DamagedStore(f"{self._path}: {WRONG_ROW}")
        return bytes(value)

    def scan(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with first <= key < last in key order; None is unbounded. Reads a chunk at a time."""
        low, inclusive = (first or b""), True
        while True:
            try:
                rows = self._chunk(low, inclusive, last)
            except DAMAGE as error:
                rows = self._rebuilt(error, partial(self._chunk, low, inclusive, last))
            except apsw.Error as error:
                raise fault(error, self._path, "read") from error
            yield from rows
            if len(rows) < _CHUNK:
                return
            low, inclusive = rows[-1][0], False

    def _chunk(self, low: bytes, inclusive: bool, last: bytes | None) -> list[tuple[bytes, bytes]]:
        return checked_rows(self._connection, self._path, low, last, _CHUNK, above=not inclusive)


Unpack = Callable[[bytes], Iterable[Change]]
"""Changes out of the packed form in which they go to the changelog."""
