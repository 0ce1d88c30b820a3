"""A file lock that says that containers work in a folder; it goes with their processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grete.private_files import private_directory

_NAME = "running"


@contextmanager
def running_in(directory: Path) -> Iterator[None]:
    """Hold the folder's lock. Several may: which of them commits is the fence's to say."""
    private_directory(directory)
    descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_run_in(directory: Path) -> bool:
    """Whether a living process has the folder's lock."""
    try:
        descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
