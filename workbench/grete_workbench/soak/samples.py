"""What the processes of a soak hold, over its time, and whether it grows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    """Of all processes of a home, without Java's, whose heaps grow as they may."""

    at_s: float
    memory_mb: float
    descriptors: int
    threads: int
    files: int
    """Below the home, without logs."""


def sample(at_s: float, home: Path) -> Sample:
    """As it is now."""
    memory = descriptors = threads = 0
    mark = f"GRETE_HOME={home}".encode()  # containers of a coordinator that was killed are nobody's children
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if mark not in (process / "environ").read_bytes().split(b"\0"):
                continue
            if b"java" in (process / "cmdline").read_bytes().split(b"\0")[0]:
                continue
            memory += int((process / "statm").read_text().split()[1]) * _PAGE
            descriptors += len(list((process / "fd").iterdir()))
            threads += len(list((process / "task").iterdir()))
    files = sum(len(names) for folder, _, names in os.walk(home) if Path(folder).name != "logs")
    return Sample(at_s, memory / 2**20, descriptors, threads, files)


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """By how much of its average each figure grows over the last half, by the line that fits it best."""
    half = [one for one in samples if one.at_s >= (samples[0].at_s + samples[-1].at_s) / 2]
    lasted_s = half[-1].at_s - half[0].at_s
    return {
        name: _slope(half, name) * lasted_s / _mean(half, name) for name in Sample._fields if name != "at_s"
    }


def _mean(samples: Sequence[Sample], name: str) -> float:
    return max(1.0, sum(float(getattr(one, name)) for one in samples) / len(samples))


def _slope(samples: Sequence[Sample], name: str) -> float:
    middle_s = sum(one.at_s for one in samples) / len(samples)
    spread = sum((one.at_s - middle_s) ** 2 for one in samples)
    rises = [(one.at_s - middle_s) * float(getattr(one, name)) for one in samples]
    return sum(rises) / spread if spread else 0.0
