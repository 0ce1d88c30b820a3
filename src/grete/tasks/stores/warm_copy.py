"""Takes a store over from a standby's copy of it, instead of replaying its changelog from the start.

A standby keeps store files by the same rules as a task does: each is a proven prefix of the changelog. So a copy of
the one that is furthest is a store file that is behind, and catches up as any other. The copy is made by SQLite's
backup, in one read transaction: it is whole, whatever the standby does meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import apsw

from grete.private_files import tighten_database

_log = logging.getLogger(__name__)


def take_over(path: Path, changelog: str, copies: Iterable[Path]) -> int | None:
    """Put the furthest usable copy in `path`'s place; returns its position, None when there is none.

    Copies that are missing, damaged, of another changelog or empty are left aside. Rows are not verified here:
    opening a store file does that.
    """
    found = [(position, copy) for copy in copies if (position := _position(copy, changelog)) > 0]
    for position, copy in sorted(found, reverse=True):
        try:
            _copy(copy, path)
        except (apsw.Error, OSError) as error:
            _log.warning("the standby copy %s cannot be taken over: %s", copy, error)
            continue
        _log.warning("store %s was taken over from the standby copy %s, at offset %d", path, copy, position)
        return position
    return None


_BUSY_MS = 5_000
"""A standby that opens its copy, too, may have to recover it."""


def _open(path: Path) -> apsw.Connection:
    opened = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    opened.set_busy_timeout(_BUSY_MS)
    return opened


def _position(copy: Path, changelog: str) -> int:
    if not copy.exists():
        return 0
    try:
        with closing(_open(copy)) as connection:
            row = connection.execute("SELECT changelog, position FROM meta").fetchone()
    except apsw.Error:
        return 0
    return int(row[1]) if row is not None and row[0] == changelog else 0


def _copy(source: Path, target: Path) -> None:
    """All or nothing: the target has its name only when it is whole."""
    unfinished = target.with_name(f"{target.name}.taking-over")
    unfinished.unlink(missing_ok=True)
    with closing(_open(source)) as origin, closing(apsw.Connection(str(unfinished))) as copy:
        tighten_database(unfinished)
        with copy.backup("main", origin, "main") as backup:
            backup.step(-1)
        # what the task had pending is the standby's no more than ours
        copy.execute("DELETE FROM pending")
    unfinished.replace(target)
