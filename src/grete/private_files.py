"""Files and folders for their owner only: the state of a job is private on a shared machine."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_directory(directory: Path) -> None:
    """Make the folder, and it and what is missing above it its owner's only."""
    for folder in reversed([folder for folder in (directory, *directory.parents) if not folder.exists()]):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    tighten(directory)


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that is created is its owner's only."""
    return os.open(path, flags, 0o600)


def tighten(path: Path) -> None:
    """Take the rights of all but its owner away; nothing where it is not there, is not ours, or is shared."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        mode = path.stat().st_mode
        if mode & _OTHERS and not mode & stat.S_ISVTX:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def tighten_database(path: Path) -> None:
    """Tighten a SQLite file that was just opened, and what is beside it: SQLite gives later files its rights."""
    for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        tighten(one)


def tighten_home(home: Path) -> None:
    """Make a home private, one of an earlier version, too: what is in it, and itself where it is not there yet."""
    if not home.exists():
        private_directory(home)
    with os.scandir(home) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False) and entry.name in _FOLDERS:
                tighten(Path(entry.path))


_FOLDERS = ("local", "jobs", "coordinators")
