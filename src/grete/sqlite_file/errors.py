"""SQLite's errors as errors of the tree."""

from __future__ import annotations

from pathlib import Path

import apsw

from grete.errors import LogCorrupted, LogError, LogUnreachable, StorageFull
from grete.sqlite_file.machine import write_lock_holder

_WRITING = ("write", "commit")


def is_disk_full(error: BaseException) -> bool:
    """Whether there was no room for a write, or for the index of the write-ahead log, SQLite's own I/O error."""
    return isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError) and error.extendedresult == int(apsw.SQLITE_IOERR_SHMSIZE)
    )


def translated(error: apsw.Error, path: Path, what: str) -> LogError | None:
    """An error of a file as one of ours, `what` being what was attempted; None for one that is our own mistake.

    StorageFull and LogUnreachable pass when there is space, or the file is not busy any more. LogCorrupted does not.
    """
    match error:
        case apsw.FullError() | apsw.IOError() if is_disk_full(error) and not _is_in_doubt(error, what):
            return StorageFull(f"the disk of {path} is full ({what}); free space and try again")
        case apsw.TooBigError():
            return LogError(
                f"cannot {what} {path}: a value is larger than SQLite takes, which is 1 GB; send smaller records, or "
                f"lower task.max.records.per.batch"
            )
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return LogCorrupted(f"{path} is damaged ({what}): {error}; restore it from a copy")
        case apsw.IOError():
            return LogError(f"I/O error on {path} ({what}): {error}; open it again")
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            holder = write_lock_holder(path)
            who = "another process" if holder is None else f"process {holder}"
            return LogUnreachable(
                f"{path} stayed locked ({what}): {who} holds it; if that process is stopped or hangs, kill it"
            )
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            return LogError(f"cannot {what} {path}: {error}; check path and permissions")
        case _:
            return None


def _is_in_doubt(error: apsw.Error, what: str) -> bool:
    """The index is written behind the log: what it has no room for may be in the log, and so come back."""
    return isinstance(error, apsw.IOError) and what in _WRITING
