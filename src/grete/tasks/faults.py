"""Whose doing an error in a task is: the application's or its message's, or the machine's.

A message that cannot be processed may be set aside. A full disk, a store that cannot be read or brokers that are away
say nothing about the message: the batch is given up and repeated, whatever the application made of the error.
"""

from __future__ import annotations

import apsw

from grete.errors import GreteError, LogError, StorageFull, WireError
from grete.model.ending import causes
from grete.tasks.stores.damage import DamagedStore


def is_machines(error: BaseException) -> bool:
    """Whether the error, or what it was raised from or amid, is none of the application's and its message's."""
    return any(
        isinstance(one, apsw.Error | MemoryError)
        or (isinstance(one, GreteError) and not isinstance(one, WireError))  # serdes refuse values with it
        for one in causes(error)
    )


FILE_ERRORS = (apsw.Error, OSError, DamagedStore)
"""Errors of our own files; caught where they are used, to distinguish them from those that an application opens."""


def file_error(what: str, error: BaseException) -> LogError:
    """One of `FILE_ERRORS` as an error of ours."""
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{what}: the disk is full")
    return LogError(f"{what}: {error!r}")
