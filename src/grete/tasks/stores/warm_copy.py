"""Takes a store over from a copy of it, instead of replaying its changelog from the start.

A standby keeps store files by the same rules as a task does: each is a proven prefix of the changelog, and so is a
snapshot. The one that is furthest is a store file that is behind, and catches up as any other. A standby's is copied
by SQLite's backup, in one read transaction: it is whole, whatever the standby does meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import apsw

from grete.errors import GreteError
from grete.private_files import tighten_database
from grete.tasks.stores.looking import open_to_read, position_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a store at an offset of its changelog. `put` makes the file of it at a path."""

    position: int
    what: str
    put: Callable[[Path], None]


def take_over(path: Path, copies: Iterable[Copy]) -> int | None:
    """Put the furthest usable copy in `path`'s place; returns its position, None when there is none.

    Rows are not verified here: opening a store file does that.
    """
    for copy in sorted(copies, key=lambda one: one.position, reverse=True):
        try:
            _put(copy, path)
        except (apsw.Error, OSError, GreteError) as error:
            _log.warning("%s cannot be taken over: %s", copy.what, error)
            continue
        _log.warning("store %s was taken over from %s, at offset %d", path, copy.what, copy.position)
        return copy.position
    return None


def standby_copies(paths: Iterable[Path], changelog: str) -> list[Copy]:
    """The copies of standbys. Those that are missing, damaged, of another changelog or empty are left aside."""
    found = ((position_of(path, changelog), path) for path in paths)
    return [
        Copy(position, f"the standby copy {path}", partial(copied, path))
        for position, path in found
        if position > 0
    ]


def copied(source: Path, target: Path) -> None:
    """Copy a store's file that may be in use.

    Raises:
        apsw.Error: it cannot be read, or there is no room.
    """
    target.unlink(missing_ok=True)
    with closing(open_to_read(source)) as origin, closing(apsw.Connection(str(target))) as copy:
        tighten_database(target)
        with copy.backup("main", origin, "main") as backup:
            backup.step(-1)
        # what the task had pending is the standby's no more than ours
        copy.execute("DELETE FROM pending")


def _put(copy: Copy, target: Path) -> None:
    """All or nothing: the target has its name only when it is whole."""
    unfinished = target.with_name(f"{target.name}.taking-over")
    copy.put(unfinished)
    unfinished.replace(target)
