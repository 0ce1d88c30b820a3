"""Which Spark task does which share of a batch: mostly the one whose Python worker did it the last time.

A share is what the tasks of one slot read. A worker keeps of its shares what is dear: open stores, instances, a
consumer that stands where the next range begins, a transactional id. Spark has as many workers as tasks at once and
gives a task to whichever waits longest: measured on 2 cores, 34 of 40 shares came to a worker that did not have
them, and half of the workers' time went into fetching what the other one had fetched.

So on a local master, where all workers see one file system, the share is chosen by the worker: a claim is a symbolic
link, which is made once or not at all, and says which Spark task made it, so that its repetition gets the same share.
On other masters a task's number says its share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.tasks.read_plan import TaskGroup


@dataclass(frozen=True, slots=True)
class Shares:
    """A batch: what each slot reads, whether `window` is due, who did the slot last, and where claims are made."""

    groups: Mapping[int, TaskGroup]
    tick: bool
    holders: Mapping[int, str]
    claims: str | None = None

    def take(self, worker: str, number: int) -> int:
        """The slot that the Spark task of this number does. Each is done once; a repeated task gets its own again."""
        if self.claims is None:
            return sorted(self.groups)[number]
        directory = Path(self.claims)
        for link in directory.iterdir():
            if os.readlink(link) == str(number):
                return int(link.name)
        for slot in self._wishes(worker):
            with contextlib.suppress(FileExistsError):
                (directory / str(slot)).symlink_to(str(number))
                return slot
        raise AssertionError(f"{len(self.groups)} shares for Spark task {number} and those before it")

    def _wishes(self, worker: str) -> list[int]:
        """First what the worker had, then what nobody has, then what others have, theirs from the end."""
        own = [slot for slot in sorted(self.groups) if self.holders.get(slot) == worker]
        free = [slot for slot in sorted(self.groups) if slot not in self.holders]
        others = sorted(self.groups.keys() - {*own, *free}, reverse=True)
        return [*own, *free, *others]


def claims_in(place: str | os.PathLike[str]) -> str:
    """A folder for claims in the place of a batch."""
    claims = Path(place) / "claims"
    claims.mkdir()
    return str(claims)


class Places:
    """Where batches have their claims, and what workers leave for the driver, below a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # what a driver that was killed has left: its workers find nothing now
        shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def of_a_batch(self) -> Iterator[str]:
        """A place for one run of a batch, and of no other: workers of a run that was given up may still come."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory) as place:
            yield place
