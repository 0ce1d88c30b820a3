"""Errors of the machine in a task: none of the application's and its message's (`grete.application.calls`)."""

from __future__ import annotations

import apsw

from grete.application.calls import is_machines_error
from grete.errors import LogError, StorageFull
from grete.sqlite_file.errors import is_disk_full
from grete.tasks.stores.damage import DamagedStore


def is_machines(error: BaseException) -> bool:
    """As `is_machines_error`, with the errors of our own files."""
    return is_machines_error(error, apsw.Error)


FILE_ERRORS = (apsw.Error, OSError, DamagedStore)
"""Errors of our own files; caught where they are used, to distinguish them from those that an application opens."""


def file_error(what: str, error: BaseException) -> LogError:
    """One of `FILE_ERRORS` as an error of ours."""
    if is_disk_full(error):
        return StorageFull(f"{what}: the disk is full")
    return LogError(f"{what}: {error!r}")
