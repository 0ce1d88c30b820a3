"""Keyed logs in a SQLite file: several named logs, many processes, one hash chain per log.

A hash chain cannot show that a whole log ends early; the file's mark does (`grete.sqlite_file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apsw

from grete.clock import Clock, Deadline
from grete.errors import IllegalStateError, InDoubt, LogCorrupted
from grete.keyed_log.base import TOMBSTONE_RETENTION_MS, AppendSignal, Entry, Fence, KeyedLog, Record
from grete.keyed_log.sqlite_compaction import compact_step, find_shadows
from grete.keyed_log.sqlite_rows import (
    LAST_TABLE,
    SCHEMA,
    delete_log,
    end_of,
    find_append,
    find_log,
    find_or_create_log,
    new_append_id,
    position_at,
    read_chunk,
)
from grete.keyed_log.sqlite_rows import append_in as append_in
from grete.sqlite_file import SqliteFile, check_fences, claim_fence

_POLL_S = (0.002, 0.1)


class SqliteKeyedLog(KeyedLog):
    """The log `name` in a file. Closing it leaves the file open for its other users, unless it `owns_file`."""

    keeps_shadowed = True

    def __init__(self, file: SqliteFile, name: str, clock: Clock, *, owns_file: bool = False) -> None:
        self._file = file
        self._owns_file = owns_file
        self._name = name
        self._clock = clock
        self._closed = False
        file.ensure_schema(LAST_TABLE, SCHEMA)
        with file.reading() as connection:
            log = find_log(connection, name)
        self._log = log or file.urgently(lambda connection: find_or_create_log(connection, name))

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """See KeyedLog."""
        id_ = append_id or new_append_id()
        with self._naming(id_), self._file.transaction() as connection:
            return self._append_in(connection, entries, fence, id_)

    def signal(self) -> AppendSignal:
        """See KeyedLog."""
        return self._file.signal()

    def append_urgently(self, entries: Sequence[Entry], *, fence: Fence | None = None) -> int:
        """See KeyedLog."""
        id_ = new_append_id()
        with self._naming(id_):
            return self._file.urgently(lambda connection: self._append_in(connection, entries, fence, id_))

    def _append_in(
        self, connection: apsw.Connection, entries: Sequence[Entry], fence: Fence | None, append_id: str
    ) -> int:
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

    @contextmanager
    def _naming(self, id_: str) -> Iterator[None]:
        """A commit in doubt is reported with the id of the append, so that it can be resolved."""
        self._check_open()
        try:
            yield
        except InDoubt as error:
            raise InDoubt(id_, f"{self._file.path}: log {self._name!r}: {error.__cause__}") from error

    def resolve(self, append_id: str) -> int | None:
        """See KeyedLog. After InDoubt the file must be opened again first."""
        self._check_open()
        self._file.settle()
        with self._file.reading() as connection:
            return find_append(connection, self._log, append_id)

    def raise_fence(self, fence: Fence) -> None:
        """See KeyedLog."""
        self._check_open()
        self._file.urgently(lambda connection: check_fences(connection, [fence]))

    def claim(self, fence: Fence) -> None:
        """See KeyedLog."""
        self._check_open()
        self._file.urgently(lambda connection: claim_fence(connection, fence))

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog."""
        self._check_open()
        return self._read(after)

    def _read(self, after: int) -> Iterator[Record]:
        with self._file.reading() as connection:
            end = end_of(connection, self._log).offset
            position = position_at(connection, self._log, after)
        if after >= end:
            return
        while position.offset < end:
            records: list[Record] = []
            try:
                with self._file.reading() as connection:
                    position = read_chunk(connection, self._log, position, end, records.append)
            except LogCorrupted:
                yield from records
                raise
            yield from records

    def end(self) -> int:
        """See KeyedLog."""
        self._check_open()
        with self._file.reading() as connection:
            return end_of(connection, self._log).offset

    def wait(self, after: int, timeout_s: float) -> bool:
        """See KeyedLog. Polls, from every 2 ms to every 100 ms."""
        deadline = Deadline(self._clock, timeout_s, pauses_s=_POLL_S)
        while self.end() <= after:
            if not deadline.pause():
                return False
        return True

    def compact(self) -> int:
        """See KeyedLog. Tombstones go after a day. Needs memory for the live keys."""
        return self.drop_shadowed()

    def drop_shadowed(
        self,
        *,
        after: int = -1,
        before: int | None = None,
        whole_from: Callable[[bytes], int] | None = None,
        apart_ms: int | None = None,
    ) -> int:
        """See KeyedLog. Reads up to `before`; 1,000 offsets go in a transaction."""
        horizon_ms = self._clock.wall_ms() - TOMBSTONE_RETENTION_MS
        shadows = find_shadows(
            self.read(after), horizon_ms, before=before, whole_from=whole_from, apart_ms=apart_ms
        )
        dropped = 0
        for first, last in shadows.steps():
            with self._file.transaction() as connection:
                dropped += compact_step(connection, self._log, shadows, first, last)
        return dropped

    def delete(self) -> None:
        """See KeyedLog."""
        self._check_open()
        with self._file.transaction() as connection:
            delete_log(connection, self._log)

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError(f"log {self._name!r} is closed")

    def close(self) -> None:
        """See KeyedLog. The file is closed by its opener."""
        if self._owns_file and not self._closed:
            self._file.close()
        self._closed = True
