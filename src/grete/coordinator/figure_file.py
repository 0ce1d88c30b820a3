"""How a job has done over the last hour, in a file beside its logs: a restart loses nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grete.private_files import private_directory, private_opener, replace_file

_NAME = "figures.tsv"
_KEPT = 360
"""Lines: an hour of them, one each ten seconds. The file is cut when it has twice as many, some 30 kB."""


class Figures(NamedTuple):
    """Of the seconds before a time; None is what was not known of them."""

    at_s: float
    behind: int | None
    records_per_s: float | None
    commit_s: float | None
    """Seconds that a commit took, on average; of a pipeline a batch, which is committed whole."""
    containers: int | None = None
    """Containers that were at work; of a pipeline on a cluster the executors of its container."""
    worst: int | None = None
    """What of `behind` is one partition's, that with the most."""
    cpu: float | None = None
    """As many processors computed for StreamTasks, on average: 1.5 is one, and half of another; 0 of a pipeline."""
    per_commit: float | None = None
    """Records of a commit, on average; of a pipeline those of a batch."""


_FIELDS = len(Figures._fields)


def read_figures(folder: Path) -> list[Figures]:
    """The figures of a job with this folder, oldest first; a line that was cut off by a crash is left out."""
    try:
        lines = (folder / _NAME).read_text("ascii", "replace").splitlines()
    except OSError:
        return []
    found = (_parsed(line) for line in lines[-_KEPT:])
    return [one for one in found if one is not None]


def _parsed(line: str) -> Figures | None:
    try:
        numbers = [float(field) if field else None for field in line.split("\t")]
        at_s, behind, rate, commit_s, containers, worst, cpu, per_commit = numbers + [None] * (
            _FIELDS - max(4, len(numbers))
        )
        whole = [None if number is None else int(number) for number in (behind, containers, worst)]
    except (ValueError, OverflowError):
        return None
    return (
        None if at_s is None else Figures(at_s, whole[0], rate, commit_s, whole[1], whole[2], cpu, per_commit)
    )


class FigureFile:
    """Appends figures, and forgets those that are older than an hour."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._lines: int | None = None

    def append(self, figures: Figures) -> None:
        """Write a line.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        if self._lines is None:
            self._lines = self._cut()
        with open(self._path, "a", encoding="ascii", opener=private_opener) as file:
            file.write("\t".join("" if value is None else f"{value:.13g}" for value in figures) + "\n")
        self._lines += 1
        if self._lines >= 2 * _KEPT:
            self._lines = self._cut()

    def _cut(self) -> int:
        """Keep whole lines alone, and not more than an hour's; returns how many."""
        private_directory(self._path.parent)
        before = self._path.read_bytes() if self._path.exists() else b""
        whole = before[: before.rfind(b"\n") + 1].splitlines(keepends=True)
        kept = b"".join(whole[-_KEPT:])
        if kept != before:
            replace_file(self._path, kept)
        return min(len(whole), _KEPT)
