"""Bytes kept aside so that a job can end on a full disk, and another leader take over (fault 19)."""

from __future__ import annotations

import os
from pathlib import Path

_STEP_BYTES = 64 * 1024
_BYTES = 4 * _STEP_BYTES


class Reserve:
    """`<file>.reserve`. Ordinary appends never get it; leadership, fences and the end of a job do.

    It is set free step by step, since what a container writes at the same time may take what was meant for the end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.reserve")

    def keep(self) -> None:
        """Put the missing bytes aside. Random, since some file systems keep zeros for nothing."""
        kept = self._size()
        if kept >= _BYTES:
            return
        try:
            with self._path.open("ab") as file:
                file.write(os.urandom(_BYTES - kept))
        except OSError:
            self._shrink(kept)  # no room for a reserve is no reason not to work

    def free(self) -> bool:
        """Give one step to the next writer. Says whether there was any."""
        kept = self._size()
        if kept:
            self._shrink(max(0, kept - _STEP_BYTES))
        return kept > 0

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _shrink(self, size: int) -> None:
        try:
            os.truncate(self._path, size)
        except FileNotFoundError:
            return  # another process removed it
