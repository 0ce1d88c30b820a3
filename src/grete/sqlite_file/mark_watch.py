"""Tells when a mark is written, which is after each commit of its file: the kernel says so, nobody has to look."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_IN_MODIFY, _IN_IGNORED = 0x2, 0x8000
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # inotify's own have the same values
_EVENT = struct.Struct("iIII")
_SOME = 4096


class MarkWatch:
    """Readable once the mark was written. Used by one thread.

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
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return int(descriptor)
