"""Errors of a store's file: damage, which a rebuild from the changelog repairs, and faults of the machine.

Each row has a checksum, since SQLite by itself does not notice a flipped bit inside a value.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from grete.errors import GreteError, LogError
from grete.sqlite_file.errors import translated

_SHORT_READ = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS)


class DamagedStore(Exception):
    """The file is unusable; the caller rebuilds it. Never leaves this package."""


DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.SQLError,
    apsw.ConstraintError,
    DamagedStore,
)
"""How damage shows. SQLError too: a flipped bit in the schema becomes a column that does not exist. Nothing else is
damage: a full disk, too many open files or a busy file would cost a healthy store."""


WRONG_ROW = "a row fails its checksum"
"""Without its key, which is the application's and would stand in logs."""


def checksum(key: bytes, value: bytes) -> int:
    """As it stands beside the row."""
    return zlib.crc32(value, zlib.crc32(key))


def checked_rows(
    connection: apsw.Connection,
    path: Path,
    first: bytes,
    last: bytes | None,
    limit: int,
    *,
    above: bool = False,
) -> list[tuple[bytes, bytes]]:
    """The first rows with first <= key < last, or `above` the first, in key order; None is unbounded.

    Raises:
        DamagedStore: one of them is not what was written.
        apsw.Error: the file cannot be read.
    """
    below, arguments = ("", [first]) if last is None else (" AND k < ?", [first, last])
    sql = f"SELECT k, v, c FROM kv WHERE k {'>' if above else '>='} ?{below} ORDER BY k LIMIT {limit:d}"  # noqa: S608 - constants
    rows = connection.execute(sql, arguments).fetchall()
    if any(checksum(key, value) != written for key, value, written in rows):
        raise DamagedStore(f"{path}: {WRONG_ROW}")
    return [(key, value) for key, value, _ in rows]


def fault(error: apsw.Error, path: Path, what: str) -> GreteError:
    """An error that is no damage, as an error of ours: the same may work later."""
    return translated(error, path, what) or LogError(f"cannot {what} {path}: {error!r}")


@contextmanager
def faults_translated(path: Path, what: str) -> Iterator[None]:
    """Translate the machine's faults; damage passes as it is, for a caller that can rebuild.

    Raises:
        DamagedStore: a read that ended short.
    """
    try:
        yield
    except DAMAGE:
        raise
    except apsw.IOError as error:
        if error.extendedresult in _SHORT_READ:
            raise DamagedStore(f"{path}: {error}") from error
        raise fault(error, path, what) from error
    except apsw.Error as error:
        raise fault(error, path, what) from error
