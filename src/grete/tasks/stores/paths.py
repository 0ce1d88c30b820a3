"""Where a task's store file lies, and which changelog it was filled from."""

from __future__ import annotations

import os
import re
import zlib
from contextlib import suppress
from itertools import islice
from pathlib import Path

from grete.tasks.spec import RunnerSpec, StoreSpec

_SAID_AT_MOST = 8_000
"""Tasks of which a machine says that it has stores: with more, a share would say too much as it begins."""


def file_name(name: str) -> str:
    """A task or store name as a file name: readable, and different for different names."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80]
    return (
        readable
        if readable == name
        else f"{readable}-{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}"
    )


def store_path(directory: Path, task: str, store: str) -> Path:
    """The file of a task's store in a folder of store files."""
    return directory / file_name(task) / f"{file_name(store)}.db"


def store_identity(store: StoreSpec, changelog_partition: int) -> str:
    """This very incarnation of the changelog stream, and the partition: files filled from another are foreign.

    So are those with times of a store whose entries do not expire any more, and the other way round.
    """
    expiring = "/expiring" if store.is_expiring else ""
    return f"{store.changelog_uid}/{store.changelog_stream}/{changelog_partition}{expiring}"


def tasks_with_stores(spec: RunnerSpec) -> list[int]:
    """The tasks, by their index, of which this machine has files: their own, or copies of a standby."""
    if not spec.stores:
        return []
    known: set[str] = set()
    for directory in (spec.store_directory, *spec.standby_directories):
        with suppress(OSError):  # nothing was ever kept there
            known.update(os.listdir(directory))
    return list(islice((task.index for task in spec.tasks if file_name(task.name) in known), _SAID_AT_MOST))
