"""Compaction of a keyed log in a SQLite file: which records go, and how the hash chain closes over them.

Reading comes first, the whole log with its proof, into a map of the last offset of each key (memory: live keys).
Dropping follows from the front in small write transactions, so that no writer waits long and a crash leaves a log
that is compacted half-way and whole. A tombstone is behind everything that it shadows, so it goes last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import apsw

from grete.keyed_log.hash_chain import seal
from grete.keyed_log.sqlite_rows import LogRow, Position, position_at

_STEP = 1_000
_Row = tuple[int, bytes | None, int, bytes]


@dataclass(frozen=True, slots=True)
class Shadows:
    """The result of a whole read up to `end`: the last offset of each key, and tombstones past retention."""

    end: int
    last: dict[bytes, int]
    expired: frozenset[int]

    def drops(self, offset: int, key: bytes) -> bool:
        """Whether the record may go."""
        return self.last.get(key, offset) > offset or offset in self.expired


def steps(end: int) -> Iterator[tuple[int, int]]:
    """The offsets to go through, a write transaction each: (first, last)."""
    return ((first, min(first + _STEP - 1, end)) for first in range(0, end + 1, _STEP))


def compact_step(connection: apsw.Connection, log: LogRow, shadows: Shadows, first: int, last: int) -> int:
    """Drop what may go of first..last; returns how many records went. The log's last row stays as a stub."""
    before = position_at(connection, log, first - 1) if first > 0 else Position(-1, log.genesis())
    rows = _rows(connection, log, before.offset, last)
    if before.offset >= 0:
        # a run that ended in the step before goes on here: begin with its stub
        stub = _rows(connection, log, before.offset - 1, before.offset)[0]
        if stub[1] is None:
            rows.insert(0, stub)
            before = position_at(connection, log, stub[2] - 1) if stub[2] > 0 else Position(-1, log.genesis())
    return _fold(connection, log, shadows, before, rows)


def _rows(connection: apsw.Connection, log: LogRow, after: int, last: int) -> list[_Row]:
    """(offset, key, timestamp or a stub's first offset, chain)."""
    rows = connection.execute(
        "SELECT id, k, timestamp_ms, chain FROM keyed_log_records WHERE id > ? AND id <= ? ORDER BY id",
        (log.row_id(after), log.row_id(last)),
    )
    return [(row_id - log.row_id(0), key, first, chain) for row_id, key, first, chain in rows]


def _fold(
    connection: apsw.Connection, log: LogRow, shadows: Shadows, before: Position, rows: list[_Row]
) -> int:
    dropped = 0
    run: list[_Row] = []
    for row in rows:
        offset, key, _, chain = row
        if key is None or shadows.drops(offset, key):
            dropped += key is not None
            run.append(row)
            continue
        _replace_by_stub(connection, log, before, run)
        before, run = Position(offset, chain), []
    _replace_by_stub(connection, log, before, run)
    return dropped


def _replace_by_stub(connection: apsw.Connection, log: LogRow, before: Position, run: list[_Row]) -> None:
    if not run or (len(run) == 1 and run[0][1] is None):
        return
    first, (last, _, _, chain) = before.offset + 1, run[-1]
    connection.executemany(
        "DELETE FROM keyed_log_records WHERE id = ?", ((log.row_id(offset),) for offset, *_ in run[:-1])
    )
    connection.execute(
        "UPDATE keyed_log_records SET k = NULL, v = ?, timestamp_ms = ?, epoch = NULL, append_id = NULL WHERE id = ?",
        (seal(before.chain, first, last, chain), first, log.row_id(last)),
    )
