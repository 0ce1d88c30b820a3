"""How large the store files of tasks are that this machine has: their own, and warm copies of standby containers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from grete.grouping.standby import is_standby_container, replica_of, task_of_standby
from grete.operations.job_handle import JobHandle
from grete.tasks.stores.paths import file_name


def store_bytes(handle: JobHandle, task: str, container: str) -> int | None:
    """Bytes of a task's store files on this machine; None where it has none of them.

    Of a standby task those of its copies: a task that is active finds its files by its own name on any container.
    """
    if is_standby_container(container):
        copies = handle.settings.job.standby_directory(handle.job, handle.home)
        return _bytes_in(copies / f"standby-{replica_of(container)}" / file_name(task_of_standby(task)))
    return _bytes_in(handle.state_directory / "stores" / file_name(task))


def _bytes_in(folder: Path) -> int | None:
    total, is_there = 0, False
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):  # a log that was folded into its file meanwhile
                total += path.stat().st_size
                is_there = True
    return total if is_there else None
