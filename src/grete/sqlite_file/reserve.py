"""Some bytes kept aside, so that on a full disk a leader can still step down and another take over (fault 19)."""

from __future__ import annotations

import os
from pathlib import Path

_BYTES = 256 * 1024


class Reserve:
    """`<file>.reserve`. Appends never get it; leadership and fences do."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.reserve")

    def keep(self) -> None:
        """Put the bytes aside, unless they are. Random, since some file systems keep zeros for nothing."""
        if self._path.exists():
            return
        try:
            self._path.write_bytes(os.urandom(_BYTES))
        except OSError:
            self.free()  # no room for a reserve is no reason not to work

    def free(self) -> bool:
        """Give the bytes to whoever writes next. Says whether there were any."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True
