"""The list of a folder's files that Spark's own file sink keeps, and by which Spark's readers go.

`_spark_metadata/<number>` has the files that entry adds, `<number>.compact`, each tenth one, all of them up to there.
Where a folder has such a list, `spark.read` and `spark.readStream` see its files and no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from grete.errors import FilesUnreachable, JobError

LIST = "_spark_metadata"
_VERSION = "v1"
_NAME = re.compile(r"(\d+)(\.compact)?\Z")
_COMPACT_EVERY = 10
"""Spark's own default (`spark.sql.streaming.fileSink.log.compactInterval`), which its readers have too."""
_KEPT = 2 * _COMPACT_EVERY
"""Entries before the newest compact one that stay, for readers that have looked which there are and not read them."""


class Objects(Protocol):
    """The files of one folder."""

    def names(self) -> list[str]:
        """Of all that are there; none where the folder is not.

        Raises:
            FilesUnreachable: the store does not answer.
        """

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: it is not there.
            FilesUnreachable: the store does not answer.
        """

    def create(self, name: str, content: bytes) -> bool:
        """Make a file that is not there, whole and in one step; False where there is one, whoever made it.

        Raises:
            FilesUnreachable: the store does not answer. The file may be there.
        """

    def remove(self, name: str) -> None:
        """Remove a file; nothing where it is not there.

        Raises:
            FilesUnreachable: the store does not answer.
        """


class FileList:
    """The list, with entries added in turn by whoever makes the next one first.

    A number is given away once, so whoever does not know of an entry cannot add one: it is refused the number, and
    `check` may refuse it the next.
    """

    def __init__(self, objects: Objects, batch_of: re.Pattern[str], check: Callable[[], None]) -> None:
        """`batch_of` finds the batch in a file's line. `check` is called between what was found and each new attempt
        at an entry, and raises what ends it."""
        self._objects = objects
        self._batch_of = batch_of
        self._check = check
        self._lines: list[str] = []
        self._next = 0
        self._is_behind = True
        self._batches: set[str] = set()

    def __contains__(self, batch: str) -> bool:
        """Whether files of that batch are in it, as far as it was read."""
        return batch in self._batches

    def _read_on(self) -> None:
        """Read the entries that were added since."""
        found = self._entries()
        whole = max((number for number, name in found.items() if not name.isdigit()), default=-1)
        if whole >= self._next:
            self._lines, self._next = [], whole
        while (name := found.get(self._next)) is not None:
            self._take(self._read(name))
        if (last := max(found, default=-1)) >= self._next:
            raise JobError(
                f"{self._objects}: entry {self._next} is not there, and {last} is. Readers refuse the list "
                f"without it: put it back from a version or a copy of the folder"
            )

    def begin(self, first: Callable[[], Sequence[str]]) -> None:
        """Add an entry that says nothing but that its number is taken; the list's first one has the lines of `first`.

        Raises:
            See `add`.
        """
        self._catch_up()
        while not self._added(first() if self._next == 0 else ()):
            continue

    def add(self, lines: Sequence[str], batch: str) -> None:
        """Add an entry, unless the batch is in there. Durable on return, and seen whole by whoever reads afterwards.

        Raises:
            FilesUnreachable: the store does not answer; the entry may be there, which the next call finds.
            JobError: an entry is lacking, or is none.
            Exception: what `check` raises.
        """
        self._catch_up()
        while batch not in self._batches and not self._added(lines):
            continue

    def _added(self, lines: Sequence[str]) -> bool:
        """Whether the next entry is ours. Where another one has it, that one is read and was checked."""
        number, is_whole = self._next, (self._next + 1) % _COMPACT_EVERY == 0
        content = "\n".join((_VERSION, *(self._lines if is_whole else ()), *lines))
        if self._objects.create(f"{number}.compact" if is_whole else str(number), content.encode()):
            self._take(lines)
            if is_whole:
                self._remove_before(number - _KEPT)
            return True
        if number not in self._entries():
            raise JobError(f"{self._objects}: {number} cannot be made, and is not there: is it a folder?")
        self._is_behind = True  # also for the next call, where one of the two ends this one
        self._catch_up()
        return False

    def _catch_up(self) -> None:
        if self._is_behind:
            self._read_on()
            self._check()
            self._is_behind = False

    def _entries(self) -> dict[int, str]:
        matches = filter(None, map(_NAME.match, self._objects.names()))
        return {int(match[1]): match[0] for match in matches}

    def _read(self, name: str) -> list[str]:
        version, *lines = self._objects.read(name).decode(errors="replace").splitlines() or [""]
        if version != _VERSION:
            raise JobError(f"{self._objects}/{name} is no list of files that Spark 3 or 4 has written")
        return lines

    def _take(self, lines: Sequence[str]) -> None:
        self._lines.extend(lines)
        self._batches.update(match[1] for match in map(self._batch_of.search, lines) if match is not None)
        self._next += 1

    def _remove_before(self, number: int) -> None:
        with suppress(FilesUnreachable):  # else with the next
            for found, name in self._entries().items():
                if found < number:
                    self._objects.remove(name)
