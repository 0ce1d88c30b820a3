"""Where a task's store file lies, and which changelog it was filled from."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from grete.tasks.spec import StoreSpec


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
    """This very incarnation of the changelog stream, and the partition: files filled from another are foreign."""
    return f"{store.changelog_uid}/{store.changelog_stream}/{changelog_partition}"
