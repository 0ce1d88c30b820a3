"""Keyed logs in a SQLite file: several named logs, many processes, one hash chain per log.

A row's `chain` is the hash of the row before it and of its own content. Compaction leaves a row's content hash in
place and drops key and value, so the chain can be followed across the gap for 32 bytes a dropped record; runs of
dropped rows are folded into one stub that keeps only the chain's value at its end.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence

import apsw

from grete.clock import Clock
from grete.errors import LogCorrupted
from grete.keyed_log.base import Entry, Fence, KeyedLog, Record
from grete.keyed_log.hash_chain import GENESIS, content_hash, link
from grete.sqlite_file import SqliteFile, check_fences

_SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, lineage TEXT NOT NULL,
  head INTEGER NOT NULL, head_hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS log_records (
  log INTEGER NOT NULL, pos INTEGER NOT NULL, k BLOB, v BLOB, timestamp_ms INTEGER NOT NULL, epoch INTEGER,
  chain BLOB NOT NULL, PRIMARY KEY (log, pos)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS log_records_by_key ON log_records (log, k, pos) WHERE k IS NOT NULL;
CREATE TABLE IF NOT EXISTS log_appends (
  log INTEGER NOT NULL, append_id TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (log, append_id)) WITHOUT ROWID;
"""
_Row = tuple[int, bytes | None, bytes | None, int, int | None, bytes]
_CHUNK = 5_000
_REMEMBERED_APPENDS = 10_000
"""Append ids are remembered for at least this many later offsets: a retry comes within seconds."""
_POLL_S = (0.002, 0.1)


def create_schema(connection: apsw.Connection) -> None:
    """Create the tables; harmless when they exist."""
    connection.execute(_SCHEMA)


def append_in(
    connection: apsw.Connection,
    name: str,
    entries: Sequence[Entry],
    *,
    now_ms: int,
    epoch: int | None = None,
    append_id: str | None = None,
) -> int:
    """Append inside the caller's write transaction; returns the offset of the last entry.

    The caller has checked the fences in the same transaction.
    """
    log, head, chain = _log_row(connection, name)
    if append_id is not None:
        known = connection.execute(
            "SELECT last FROM log_appends WHERE log = ? AND append_id = ?", (log, append_id)
        ).fetchone()
        if known is not None:
            return int(known[0])
    rows = []
    for position, entry in enumerate(entries, head + 1):
        content = content_hash(position, entry.key, entry.value, now_ms, epoch)
        chain = link(chain, content)
        rows.append((log, position, entry.key, entry.value, now_ms, epoch, chain))
    connection.executemany("INSERT INTO log_records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    head += len(rows)
    connection.execute("UPDATE logs SET head = ?, head_hash = ? WHERE id = ?", (head, chain, log))
    if append_id is not None:
        connection.execute("INSERT INTO log_appends VALUES (?, ?, ?)", (log, append_id, head))
        connection.execute(
            "DELETE FROM log_appends WHERE log = ? AND last < ?", (log, head - _REMEMBERED_APPENDS)
        )
    return head


def _log_row(connection: apsw.Connection, name: str) -> tuple[int, int, bytes]:
    """(id, head, head hash), created when it is new."""
    row = connection.execute("SELECT id, head, head_hash FROM logs WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return int(row[0]), int(row[1]), bytes(row[2])
    connection.execute(
        "INSERT INTO logs (name, lineage, head, head_hash) VALUES (?, ?, -1, ?)",
        (name, uuid.uuid4().hex, GENESIS),
    )
    return connection.last_insert_rowid(), -1, GENESIS


class SqliteKeyedLog(KeyedLog):
    """The log `name` in a file. Closing it leaves the file open for its other users."""

    def __init__(self, file: SqliteFile, name: str, clock: Clock) -> None:
        self._file = file
        self._name = name
        self._clock = clock
        with file.transaction() as connection:
            create_schema(connection)
            self._id, _, _ = _log_row(connection, name)

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """See KeyedLog."""
        with self._file.transaction() as connection:
            if fence is not None:
                check_fences(connection, [fence])
            return append_in(
                connection,
                self._name,
                entries,
                now_ms=self._clock.wall_ms(),
                epoch=None if fence is None else fence.epoch,
                append_id=append_id,
            )

    def resolve(self, append_id: str) -> int | None:
        """See KeyedLog."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT last FROM log_appends WHERE log = ? AND append_id = ?", (self._id, append_id)
            ).fetchone()
        return None if row is None else int(row[0])

    def raise_fence(self, fence: Fence) -> None:
        """See KeyedLog."""
        with self._file.transaction() as connection:
            check_fences(connection, [fence])

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog."""
        end = self.end()
        previous: tuple[int, bytes] | None = (-1, GENESIS) if after < 0 else self._chain_at(after)
        while after < end:
            rows = self._rows(after, end)
            if not rows:
                raise LogCorrupted(
                    f"{self._file.path}: log {self._name!r} has no record after {after} of {end}"
                )
            for position, key, value, timestamp_ms, epoch, chain in rows:
                if key is not None:
                    self._check(previous, position, key, value, timestamp_ms, epoch, chain)
                    yield Record(position, key, value, timestamp_ms, epoch)
                previous = (position, chain)
            after = rows[-1][0]

    def _rows(self, after: int, end: int) -> list[_Row]:
        with self._file.reading() as connection:
            rows: list[_Row] = connection.execute(
                "SELECT pos, k, v, timestamp_ms, epoch, chain FROM log_records "
                "WHERE log = ? AND pos > ? AND pos <= ? ORDER BY pos LIMIT ?",
                (self._id, after, end, _CHUNK),
            ).fetchall()
        return rows

    def _chain_at(self, position: int) -> tuple[int, bytes] | None:
        """The chain's value at a position, None when compaction has folded it away."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT chain FROM log_records WHERE log = ? AND pos = ?", (self._id, position)
            ).fetchone()
        return None if row is None else (position, row[0])

    def _check(
        self,
        previous: tuple[int, bytes] | None,
        position: int,
        key: bytes,
        value: bytes | None,
        timestamp_ms: int,
        epoch: int | None,
        chain: bytes,
    ) -> None:
        if previous is None:
            return  # reading began in the middle of a folded run: the next record is checked against this one
        if previous[0] != position - 1:
            raise LogCorrupted(
                f"{self._file.path}: log {self._name!r} misses the records after offset {previous[0]} up to "
                f"{position - 1}"
            )
        if link(previous[1], content_hash(position, key, value, timestamp_ms, epoch)) != chain:
            raise LogCorrupted(
                f"{self._file.path}: log {self._name!r}, offset {position} fails its hash chain"
            )

    def end(self) -> int:
        """See KeyedLog."""
        with self._file.reading() as connection:
            (head,) = connection.execute("SELECT head FROM logs WHERE id = ?", (self._id,)).fetchone() or (
                -1,
            )
        return int(head)

    def wait(self, after: int, timeout_s: float) -> bool:
        """See KeyedLog. Polls, from every 2 ms to every 100 ms."""
        deadline = self._clock.monotonic_s() + timeout_s
        pause = _POLL_S[0]
        while self.end() <= after:
            left = deadline - self._clock.monotonic_s()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, _POLL_S[1])
        return True

    def compact(self) -> int:
        """See KeyedLog. Shadowed records are folded into stubs that keep the chain."""
        with self._file.transaction() as connection:
            dropped = connection.execute(
                "SELECT pos FROM log_records AS r WHERE log = ? AND k IS NOT NULL AND EXISTS ("
                "SELECT 1 FROM log_records AS later WHERE later.log = r.log AND later.pos > r.pos AND later.k = r.k)",
                (self._id,),
            ).fetchall()
            connection.executemany(
                "UPDATE log_records SET k = NULL, v = NULL WHERE log = ? AND pos = ?",
                ((self._id, position) for (position,) in dropped),
            )
            # a stub followed by a stub adds nothing: only the last of a run carries the chain on
            connection.execute(
                "DELETE FROM log_records WHERE log = ? AND k IS NULL AND EXISTS ("
                "SELECT 1 FROM log_records AS next WHERE next.log = log_records.log "
                "AND next.pos = log_records.pos + 1 AND next.k IS NULL)",
                (self._id,),
            )
        return len(dropped)

    def close(self) -> None:
        """See KeyedLog. The file is closed by whoever opened it."""
