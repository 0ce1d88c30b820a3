"""Logs of containers, which write to them for as long as they live: nobody can ask them, or their JVM, to stop."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from grete.private_files import private_opener

_log = logging.getLogger("grete.coordinator")
LARGEST_BYTES = 32 * 1024 * 1024
LOOK_S = 10.0
"""How often logs are looked at; a container that writes 100 MB a second has a gigabyte by then."""


def cut(log: Path, largest: int = LARGEST_BYTES) -> None:
    """Where a log is larger, move it to `.log.1`, in place of what was there, and empty it; of a huge one the end.

    Processes that write to it go on at its begin, since they opened it for appending. What they write in the
    moment between the end of the copy and the emptying is in neither.
    """
    before = log.with_suffix(".log.1")
    try:
        size = log.stat().st_size
        if size <= largest:
            return
        before.unlink(missing_ok=True)  # first: where a disk is nearly full the copy has its room
        with log.open("rb") as source, open(before, "wb", opener=private_opener) as copy:
            source.seek(max(0, size - 2 * largest))
            shutil.copyfileobj(source, copy, 1 << 20)
            os.truncate(log, 0)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("%s is larger than %d MB and could not be cut: %s", log, largest >> 20, error)
