"""What a process and those below it have used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> Iterator[int]:
    """The process and all that it has begun, as they live now."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            for child in task.read_text().split():
                yield from tree(int(child))


def cpu_s(pid: int) -> float:
    """Processor time of the process and those below it, those that have ended included."""
    return sum(map(_cpu_s, tree(pid)))


def own_cpu_s(pid: int) -> float:
    """Processor time of the process alone; nothing when it has ended."""
    return _fields(pid, slice(11, 13))


def _cpu_s(pid: int) -> float:
    return _fields(pid, slice(11, 15))  # its own, and of children that have ended


def _fields(pid: int, which: slice) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[which])) / _TICKS
