"""A file lock that says that containers work in a folder; it goes with their processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grete.private_files import private_directory

_NAME = "running"


@contextmanager
def running_in(directory: Path) -> Iterator[None]:
    """Hold the folder's lock. Several processes may: the fence decides which of them commits.

    The first of them removes what batches of earlier versions have left.
    """
    private_directory(directory)
    descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if _is_free(descriptor):
            shutil.rmtree(at_work_in(directory), ignore_errors=True)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def at_work_in(directory: Path) -> Path:
    """Where batches of earlier versions kept their claims and outputs."""
    return directory / "batches"


def _is_free(descriptor: int) -> bool:
    """Whether no other process has the lock; it is taken then."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
