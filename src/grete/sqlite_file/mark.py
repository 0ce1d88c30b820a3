"""The high-water mark: beside the file, the number of the last commit that was acknowledged.

Written after the commit is durable and never synced: after a crash it may claim less than the file holds, never
more. So a file below its mark has lost something, whatever lost it. It is also how the kernel tells who waits that
something was committed: nobody has to look again and again.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger("grete.sqlite_file")
_MARK = struct.Struct(">16sqI")
_IN_MODIFY, _IN_OPEN, _IN_IGNORED = 0x2, 0x20, 0x8000
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # inotify's own have the same values
_EVENT = struct.Struct("iIII")
_SOME = 4096


@dataclass(frozen=True, slots=True)
class Commit:
    """The number of a commit in a file's lineage. A file that was recreated has another lineage."""

    lineage: bytes
    number: int


class MarkFile:
    """`<file>.mark`. Removing it is the operator's way to accept a loss."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.mark")
        self._descriptor: int | None = None

    def read(self) -> Commit | None:
        """The mark, None when there is none or it is damaged itself, as a power cut may leave it."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) < _MARK.size:
            return None
        lineage, number, crc = _MARK.unpack_from(data)
        return Commit(lineage, number) if crc == _crc(lineage, number) else None

    def write(self, commit: Commit) -> None:
        """Raise the mark. Two processes may write in the other order than they committed: it then claims less."""
        record = _MARK.pack(commit.lineage, commit.number, _crc(commit.lineage, commit.number))
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, record, 0)
        except OSError as error:
            # the commit is durable: it would be a lie to fail it for want of its mark
            _log.warning("the mark %s was not written (%s): it stays behind", self.path, error)

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _crc(lineage: bytes, number: int) -> int:
    return zlib.crc32(struct.pack(">16sq", lineage, number))


class MarkWatch:
    """Readable once the mark was written, and at first: what was written before it watched is looked for once.

    Used by one thread.

    There is none where the system has no more to give (128 for a user by default), or no mark is there yet: then
    somebody has to look now and then, as he had to anyway, since a commit may come without a mark.
    """

    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self._descriptor: int | None = None

    def descriptor(self) -> int | None:
        """To wait for; None where there is none."""
        if self._descriptor is None:
            self._descriptor = _watch(self._mark)
        return self._descriptor

    def drain(self) -> None:
        """Take what was told, before a look at the file: what comes after it is told again."""
        if self._descriptor is None:
            return
        try:
            told = os.read(self._descriptor, _SOME)
        except BlockingIOError:
            return
        if any(_EVENT.unpack_from(told, at)[1] & _IN_IGNORED for at in range(0, len(told), _EVENT.size)):
            self.close()  # the file is another one now, or gone

    def close(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _watch(path: Path) -> int | None:
    """A write between a look at the file and the first wait was found when that was over: 10 s later in a test."""
    import ctypes  # 3 ms, for who waits

    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return None
    name = os.fsencode(path)
    try:
        if libc.inotify_add_watch(descriptor, name, _IN_MODIFY | _IN_OPEN) >= 0:
            os.close(
                os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            )  # its own opening is the first that it is told
            if libc.inotify_add_watch(descriptor, name, _IN_MODIFY) >= 0:
                return int(descriptor)
    except OSError:
        pass  # it is gone again
    os.close(descriptor)
    return None
