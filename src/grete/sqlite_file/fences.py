"""Fences: for each scope the highest epoch that was ever seen, in the file that the fence protects.

Each row is sealed, since a flipped bit that lowers an epoch would let a fenced writer in again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import apsw

from grete.errors import Fenced, LogCorrupted
from grete.model.fence import Fence

SCHEMA = """
CREATE TABLE IF NOT EXISTS fenced_scopes (
  scope TEXT PRIMARY KEY, epoch INTEGER NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
"""


def check_fences(connection: apsw.Connection, fences: Iterable[Fence]) -> None:
    """Inside a write transaction: refuse every fence below what its scope has seen, raise the others.

    Raises:
        Fenced: the first scope that has seen a higher epoch.
        LogCorrupted: a scope's row fails its seal.
    """
    for fence in fences:
        seen = seen_epoch(connection, fence.scope)
        if seen is not None and seen > fence.epoch:
            raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
        if seen is None or seen < fence.epoch:
            connection.execute(
                "INSERT OR REPLACE INTO fenced_scopes VALUES (?, ?, ?)",
                (fence.scope, fence.epoch, _seal(fence.scope, fence.epoch)),
            )


def claim_fence(connection: apsw.Connection, fence: Fence) -> None:
    """Inside a write transaction: raise a scope to an epoch that it has not seen yet.

    Raises:
        Fenced: it has seen this epoch or a higher one.
        LogCorrupted: the scope's row fails its seal.
    """
    seen = seen_epoch(connection, fence.scope)
    if seen is not None and seen >= fence.epoch:
        raise Fenced(fence.scope, epoch=fence.epoch, seen=seen)
    check_fences(connection, [fence])


def seen_epoch(connection: apsw.Connection, scope: str) -> int | None:
    """The highest epoch that the scope has seen, None when it was never fenced.

    Raises:
        LogCorrupted: the scope's row fails its seal.
    """
    row = connection.execute("SELECT epoch, seal FROM fenced_scopes WHERE scope = ?", (scope,)).fetchone()
    if row is None:
        return None
    epoch, seal = row
    if not isinstance(epoch, int) or seal != _seal(scope, epoch):
        raise LogCorrupted(
            f"{connection.filename}: the fence of {scope!r} is damaged; restore the file from a copy"
        )
    return epoch


def highest_epoch(connection: apsw.Connection, beginning: str) -> int:
    """The highest epoch that a scope whose name begins so has seen, 0 for none.

    Raises:
        LogCorrupted: the row of one of them fails its seal.
    """
    rows = connection.execute(
        "SELECT scope FROM fenced_scopes WHERE substr(scope, 1, ?) = ?", (len(beginning), beginning)
    )
    return max((seen_epoch(connection, scope) or 0 for (scope,) in rows.fetchall()), default=0)


def _seal(scope: str, epoch: int) -> bytes:
    return hashlib.sha256(f"{epoch} {scope}".encode()).digest()[:8]
