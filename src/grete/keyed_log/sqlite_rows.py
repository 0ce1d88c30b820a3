"""The rows of keyed logs in a SQLite file: schema, appending inside a transaction, reading with proof.

Several logs share one table: a row's id is the log's number in the upper bits and the offset in the lower 40, so
that a log is one run of the table's b-tree (twice as fast to read as a two-column key) and the end of a log is its
last row; nothing else stores where it ends, so nothing can disagree.
"""

from __future__ import annotations

import itertools
import os
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import apsw

from grete.errors import LogCorrupted, LogError
from grete.failpoints import failpoint
from grete.keyed_log.base import Entry, Record
from grete.keyed_log.hash_chain import genesis, link, seal

SCHEMA = """
CREATE TABLE IF NOT EXISTS keyed_logs (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, lineage TEXT NOT NULL, format INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS keyed_log_appends (
  number INTEGER NOT NULL, append_id BLOB NOT NULL, last INTEGER NOT NULL,
  PRIMARY KEY (number, append_id)) WITHOUT ROWID;
-- a record, or (k null) a stub of dropped ones: timestamp_ms is then the first offset it stands for, v its seal
CREATE TABLE IF NOT EXISTS keyed_log_records (
  id INTEGER PRIMARY KEY, k BLOB, v BLOB, timestamp_ms INTEGER NOT NULL, epoch INTEGER, append_id BLOB,
  chain BLOB NOT NULL);
"""
LAST_TABLE = "keyed_log_records"
_FORMAT = 1
_OFFSET_BITS = 40
_OFFSETS = 1 << _OFFSET_BITS
_CHUNK_RECORDS = 4_000
_CHUNK_BYTES = 4 << 20
_REMEMBERED = 10_000
"""Append ids are remembered for at least this many later offsets: a retry comes within seconds."""
_FORGET_EVERY = 1_000
_DAMAGE = (TypeError, ValueError, struct.error)  # what a flipped type or length makes of a row

_incarnation = uuid.uuid4().hex[:16]
_sequence = itertools.count()


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log in its file."""

    number: int
    name: str
    lineage: str

    def row_id(self, offset: int) -> int:
        """The id of the row of an offset."""
        return (self.number << _OFFSET_BITS) + offset

    def genesis(self) -> bytes:
        """The chain before the first record."""
        return genesis(self.name, self.lineage)


@dataclass(frozen=True, slots=True)
class Position:
    """The chain's value after an offset."""

    offset: int
    chain: bytes


def new_append_id() -> str:
    """This process's next append id: its incarnation and a sequence number. A forked child must not append."""
    return f"{_incarnation}-{next(_sequence)}"


def find_log(connection: apsw.Connection, name: str) -> LogRow | None:
    """The log of this name.

    Raises:
        LogError: a newer grete wrote it.
    """
    row = connection.execute(
        "SELECT number, lineage, format FROM keyed_logs WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        return None
    if row[2] != _FORMAT:
        raise LogError(
            f"{connection.filename}: log {name!r} has format {row[2]}, this grete reads {_FORMAT}; upgrade grete"
        )
    return LogRow(row[0], name, row[1])


def delete_log(connection: apsw.Connection, log: LogRow) -> None:
    """Remove the log and all its rows; one of the same name that is made later has another lineage."""
    connection.execute(
        "DELETE FROM keyed_log_records WHERE id BETWEEN ? AND ?", (log.row_id(0), log.row_id(_OFFSETS - 1))
    )
    connection.execute("DELETE FROM keyed_log_appends WHERE number = ?", (log.number,))
    connection.execute("DELETE FROM keyed_logs WHERE number = ? AND lineage = ?", (log.number, log.lineage))


def find_or_create_log(connection: apsw.Connection, name: str) -> LogRow:
    """The log of this name, made now when it is new."""
    log = find_log(connection, name)
    if log is None:
        connection.execute(
            "INSERT INTO keyed_logs (name, lineage, format) VALUES (?, ?, ?)",
            (name, os.urandom(16).hex(), _FORMAT),
        )
        log = find_log(connection, name)
        assert log is not None
    return log


def position_at(connection: apsw.Connection, log: LogRow, offset: int) -> Position:
    """The chain at the last row at or before an offset; at the genesis when there is none."""
    row = connection.execute(
        "SELECT id, chain FROM keyed_log_records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
        (log.row_id(0), log.row_id(offset)),
    ).fetchone()
    return Position(-1, log.genesis()) if row is None else Position(row[0] - log.row_id(0), row[1])


def end_of(connection: apsw.Connection, log: LogRow) -> Position:
    """Where the log ends: compaction never drops its last row."""
    return position_at(connection, log, _OFFSETS - 1)


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

    The caller has checked the fences in the same transaction. An append id that is known already writes nothing
    and returns what the first append returned.
    """
    log = find_or_create_log(connection, name)
    if append_id is not None:
        known = find_append(connection, log, append_id)
        if known is not None:
            return known
    end = end_of(connection, log)
    if not entries:
        return end.offset
    tag = None if append_id is None else append_id.encode()
    last = end.offset + len(entries)
    rows = _chained(log, end, entries, now_ms, epoch, tag)
    connection.executemany("INSERT INTO keyed_log_records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    failpoint("log.rows-written")
    if tag is not None:
        connection.execute("INSERT INTO keyed_log_appends VALUES (?, ?, ?)", (log.number, tag, last))
        if last // _FORGET_EVERY != end.offset // _FORGET_EVERY:
            connection.execute(
                "DELETE FROM keyed_log_appends WHERE number = ? AND last < ?",
                (log.number, last - _REMEMBERED),
            )
    return last


def _chained(
    log: LogRow, end: Position, entries: Sequence[Entry], now_ms: int, epoch: int | None, tag: bytes | None
) -> Iterator[tuple[int, bytes, bytes | None, int, int | None, bytes | None, bytes]]:
    """The rows of an append that begins after `end`; the append's id goes with the last one."""
    chain, last = end.chain, end.offset + len(entries)
    for offset, entry in enumerate(entries, end.offset + 1):
        mine = tag if offset == last else None
        chain = link(chain, offset, entry.key, entry.value, now_ms, epoch, mine)
        yield log.row_id(offset), entry.key, entry.value, now_ms, epoch, mine, chain
        failpoint("log.row-written")


def find_append(connection: apsw.Connection, log: LogRow, append_id: str) -> int | None:
    """The last offset of an append, None when it is not there or was forgotten."""
    row = connection.execute(
        "SELECT last FROM keyed_log_appends WHERE number = ? AND append_id = ?",
        (log.number, append_id.encode()),
    ).fetchone()
    return None if row is None else int(row[0])


def read_chunk(
    connection: apsw.Connection, log: LogRow, after: Position, end: int, deliver: Callable[[Record], None]
) -> Position:
    """Deliver the next records after `after` up to `end`, some thousand or some megabytes; returns where it stopped.

    Raises:
        LogCorrupted: a row fails the chain, or one is missing. Every record before it has been delivered.
    """
    base = log.row_id(0)
    # a compaction since the last chunk may have folded the row where we stopped into a stub
    start = position_at(connection, log, after.offset)
    if start.offset == after.offset and start.chain != after.chain:
        raise _damaged(connection, log, after.offset)
    offset, chain = start.offset, start.chain
    size = 0
    try:
        rows = connection.execute(
            "SELECT id, k, v, timestamp_ms, epoch, append_id, chain FROM keyed_log_records "
            "WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
            (base + offset, base + _OFFSETS, _CHUNK_RECORDS),
        )
        for row_id, key, value, timestamp_ms, epoch, append_id, found in rows:
            if key is None:
                last = row_id - base
                if timestamp_ms != offset + 1 or seal(chain, timestamp_ms, last, found) != value:
                    raise _damaged(connection, log, offset + 1)
                offset, chain = last, found
                continue
            if offset >= end:
                break
            offset += 1
            if row_id != base + offset:
                raise _damaged(connection, log, offset)
            chain = link(chain, offset, key, value, timestamp_ms, epoch, append_id)
            if chain != found:
                raise _damaged(connection, log, offset)
            deliver(Record(offset, key, value, timestamp_ms, epoch))
            size += len(key) + (len(value) if value else 0)
            if size > _CHUNK_BYTES:
                break
    except _DAMAGE as error:
        raise _damaged(connection, log, offset) from error
    if offset == start.offset:
        raise _damaged(connection, log, offset + 1)
    return Position(offset, chain)


def _damaged(connection: apsw.Connection, log: LogRow, offset: int) -> LogCorrupted:
    return LogCorrupted(
        f"{connection.filename}: log {log.name!r}, offset {offset} fails the hash chain or is missing; "
        f"restore the file from a copy"
    )
