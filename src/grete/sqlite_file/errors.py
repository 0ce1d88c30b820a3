"""SQLite's errors as errors of the tree."""

from __future__ import annotations

from pathlib import Path

import apsw

from grete.errors import LogCorrupted, LogError, LogUnreachable, StorageFull
from grete.sqlite_file.machine import write_lock_holder


def translated(error: apsw.Error, path: Path, what: str) -> LogError | None:
    """An error of a file as one of ours, `what` being what was attempted; None for one that is our own mistake.

    StorageFull and LogUnreachable pass when there is space, or the file is not busy any more. LogCorrupted does not.
    """
    match error:
        case apsw.FullError():
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
