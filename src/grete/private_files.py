"""Files and folders for their owner only: the state of a job is private on a shared machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
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


def write_private(path: Path, text: str) -> None:
    """Write a file that is its owner's only where it is made; one that is there is overwritten where it lies."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)


def replace_file(
    path: Path,
    content: bytes,
    *,
    is_durable: bool = False,
    mode: int = 0o600,
    once_written: Callable[[], None] | None = None,
) -> None:
    """Give a file a new content: at every moment, and to every reader, it has one or the other whole.

    Several may write one file at a time; the last one's content stays. With `is_durable` a power cut after this
    returns loses neither content nor name. `mode` is subject to the umask.

    Args:
        once_written: is called when the content is on the disk under another name.

    Raises:
        OSError: no room, or no right; the file is as it was.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        if once_written is not None:
            once_written()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if is_durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: a new file's content without its name is no file."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
