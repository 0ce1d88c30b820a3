"""What is in a store's file, for a process that does not own it: exact at a commit, and never written.

The base of a file is a proven prefix of the changelog, and behind it may stand the changes of the last batch, which
the commit's token proves (`tasks.stores.file`). So of a running task one file mostly has all, and the changelog is
read for a batch or two at most.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from grete.errors import OffsetOutOfRange
from grete.systems.base import Change
from grete.tasks.stores.damage import DAMAGE, DamagedStore, checked_rows

_BUSY_MS = 5_000
"""A standby that opens its copy, too, may have to recover it."""
_BEHIND_AT_MOST = 200_000
"""Records: a file that is further behind is of a task that has left this machine."""
Rows = dict[bytes, bytes]
ReadChanges = Callable[[int, int, int], Iterable[Change]]
"""Changelog records with start <= offset < end for a copy that was good at a time, as `System.changes`."""


def open_to_read(path: Path) -> apsw.Connection:
    """A store's file that others may write.

    Raises:
        apsw.Error: it cannot be opened.
    """
    opened = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    opened.set_busy_timeout(_BUSY_MS)
    return opened


def position_of(file: Path, changelog: str) -> int:
    """The offset of the changelog at which a store's file stands; 0 of one that is missing or of another."""
    if not file.exists():
        return 0
    try:
        with closing(open_to_read(file)) as connection:
            row = connection.execute("SELECT changelog, position FROM meta").fetchone()
    except apsw.Error:
        return 0
    return int(row[1]) if row is not None and row[0] == changelog else 0


def lacks_up_to(file: Path, changelog: str, key: bytes) -> int:
    """Up to which offset of the changelog a store is known to have no such key; 0 where it has, or is not known."""
    if not file.exists():
        return 0
    try:
        with closing(open_to_read(file)) as connection:
            row = connection.execute(
                "SELECT changelog, position, EXISTS (SELECT 1 FROM kv WHERE k = ?) FROM meta", (key,)
            ).fetchone()
    except apsw.Error:
        return 0
    return int(row[1]) if row is not None and row[0] == changelog and not row[2] else 0


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys with first <= key < last; None is unbounded."""

    first: bytes
    last: bytes | None

    def last_changes(self, changes: Iterable[Change]) -> dict[bytes, bytes | None]:
        """The last value of each key within it; None is deleted."""
        first, last = self.first, self.last
        return {key: value for key, value in changes if key >= first and (last is None or key < last)}


def living_rows(found: Mapping[bytes, bytes | None], limit: int) -> Rows:
    """The first that are not deleted, in the order of keys."""
    return dict(sorted((key, value) for key, value in found.items() if value is not None)[:limit])


class NewerThanCommit(Exception):
    """The file has more than the commit that it was asked for: a later one is there."""


class StoreLook:
    """A file that stays open for one question after the other. Used by one thread."""

    def __init__(self, path: Path, changelog: str) -> None:
        """Raises apsw.Error: it cannot be opened."""
        self._changelog = changelog
        self._path = path
        self._inode = path.stat().st_ino
        self._connection = open_to_read(path)

    @property
    def is_current(self) -> bool:
        """Whether the path is this file still, and not one that took its place."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def rows(
        self,
        wanted: KeyRange,
        at: int,
        token: str,
        limit: int,
        read_changes: ReadChanges,
        unpack: Callable[[bytes], Iterable[Change]],
    ) -> Rows | None:
        """The first rows of a range of keys, up to `limit`, at an offset of the changelog where a commit with this
        token ended; None where the file is of no use for it.

        Raises:
            NewerThanCommit: the file stands behind `at`.
            GreteError: see `read_changes`.
        """
        try:
            with self._transaction() as connection:
                base, copied_ms = self._standing(connection)
                if base > at and any(True for _ in read_changes(at, base, copied_ms)):
                    # else marks of transactions alone
                    raise NewerThanCommit(f"offset {base} of its changelog, and its last commit at {at}")
                changed: dict[bytes, bytes | None] = {}
                pending = connection.execute("SELECT token, position, crc, changes FROM pending").fetchone()
                if pending is not None and pending[0] == token and base < pending[1] <= at:
                    if zlib.crc32(pending[3]) != pending[2]:
                        return None
                    changed, base = wanted.last_changes(unpack(pending[3])), int(pending[1])
                if at - base > _BEHIND_AT_MOST:
                    return None
                if base < at:
                    changed |= wanted.last_changes(read_changes(base, at, copied_ms))
                most = limit + len(changed)
                kept = checked_rows(connection, self._path, wanted.first, wanted.last, most)
                return living_rows(dict(kept) | changed, limit)
        except (apsw.Error, *DAMAGE, OffsetOutOfRange):
            return None

    def _standing(self, connection: apsw.Connection) -> tuple[int, int]:
        """At which offset of the changelog the base stands, and when that was so."""
        changelog, base = connection.execute("SELECT changelog, position FROM meta").fetchone() or ("", 0)
        if changelog != self._changelog:
            raise DamagedStore(f"filled from {changelog}")
        (copied_ms,) = connection.execute("SELECT wall_ms FROM copied").fetchone() or (0,)
        return int(base), int(copied_ms)

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self._connection.close(True)
