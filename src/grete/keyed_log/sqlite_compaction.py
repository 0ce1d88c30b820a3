"""Compaction of a keyed log in a SQLite file: which records go, and how the hash chain closes over them.

Reading comes first, the whole log with its proof, into a map of the last offset of each key (memory: live keys).
Dropping follows from the front in small write transactions, so that no writer waits long and a crash leaves a log
that is compacted half-way and whole. A tombstone is behind everything that it shadows, so it goes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import apsw

from grete.keyed_log.base import Record
from grete.keyed_log.hash_chain import seal
from grete.keyed_log.sqlite_rows import LogRow, Position, position_at

_STEP = 1_000
_Row = tuple[int, bytes | None, int, bytes]


Place = tuple[bytes, int]
"""A key, and the number of a span of time; 0 where all times are one."""


def _place(key: bytes, timestamp_ms: int, apart_ms: int | None) -> Place:
    return key, 0 if apart_ms is None else timestamp_ms // apart_ms


@dataclass(frozen=True, slots=True)
class Shadows:
    """The result of reading: the last offset of each key, of those that may go, and tombstones past retention.

    `touched` are the steps in which something goes; of a long log they are few.
    """

    last: dict[Place, int]
    expired: frozenset[int]
    touched: frozenset[int]
    apart_ms: int | None = None

    def drops(self, offset: int, key: bytes, timestamp_ms: int) -> bool:
        """Whether the record may go."""
        return (
            self.last.get(_place(key, timestamp_ms, self.apart_ms), offset) > offset or offset in self.expired
        )

    def steps(self) -> Iterator[tuple[int, int]]:
        """The offsets to go through, from the front, a write transaction each: (first, last)."""
        return ((step * _STEP, step * _STEP + _STEP - 1) for step in sorted(self.touched))


def find_shadows(
    records: Iterable[Record],
    horizon_ms: int,
    *,
    before: int | None = None,
    whole_from: Callable[[bytes], int] | None = None,
    apart_ms: int | None = None,
) -> Shadows:
    """See `KeyedLog.drop_shadowed`; tombstones up to `horizon_ms` go once they shadow nothing."""
    last: dict[Place, int] = {}
    tombstones: dict[Place, int] = {}
    touched: set[int] = set()
    for offset, key, value, timestamp_ms, _ in records:
        if before is not None and offset >= before:
            break
        if whole_from is not None and offset >= whole_from(key):
            continue
        place = _place(key, timestamp_ms, apart_ms)
        older = last.get(place)
        if older is not None:
            touched.add(older // _STEP)
        last[place] = offset
        if value is None and timestamp_ms <= horizon_ms and apart_ms is None:
            tombstones[place] = offset
    expired = frozenset(offset for place, offset in tombstones.items() if last[place] == offset)
    return Shadows(last, expired, frozenset(touched.union(offset // _STEP for offset in expired)), apart_ms)


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
        offset, key, timestamp_ms, chain = row
        if key is None or shadows.drops(offset, key, timestamp_ms):
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
