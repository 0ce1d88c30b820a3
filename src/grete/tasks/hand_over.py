"""Packed records on their way from a worker to the driver that commits them: few in the answer, many through a file.

An answer goes through Spark's JVM, several times over, and what does not fit its heap ends the container. The
embedded system is one machine, so a worker can leave records where the driver reads them, a piece at a time, inside
its transaction. Files are in a folder of one run of one batch, which goes when that run has ended.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from grete.errors import LogError, StorageFull
from grete.private_files import private_directory, private_opener
from grete.systems.commit_group import Segment, SegmentWrite
from grete.systems.records import pieces, write
from grete.tasks.commit.base import ShareCommits
from grete.tasks.results import Processed, TaskResult
from grete.tasks.spec import BatchPlan

IN_ANSWERS_BYTES = 32 << 20
"""The answers of all shares of a batch together at most; a heap of 1 GB held five times as much."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """Records for one stream partition that are in a file until they are committed. See `systems.base.Segment`."""

    stream: str
    partition: int
    count: int
    path: str
    start: int
    size: int
    first: int | None = None

    @property
    def data(self) -> bytes:
        """The records, read now.

        Raises:
            LogError: the file is not what was written; nothing was committed.
        """
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self.start)
                data = file.read(self.size)
        except OSError as error:
            raise LogError(f"cannot read the outputs that a worker left in {self.path}: {error}") from error
        if len(data) != self.size:
            raise LogError(
                f"the outputs that a worker left in {self.path} end before {self.start + self.size}"
            )
        return data


class HandOver(ShareCommits):
    """Packs a share's results for the driver, which commits them."""

    def __init__(self, directory: str, shares: int) -> None:
        """`shares` of the batch answer at once."""
        self._path = Path(directory) / f"{uuid.uuid4().hex}.records"
        self._left = IN_ANSWERS_BYTES // shares
        self._results: list[TaskResult] = []

    def begin(
        self, plan: BatchPlan, slot: int, tasks: Collection[int], *, is_repeated: bool
    ) -> list[TaskResult]:
        """See ShareCommits: a batch that is committed is not run again."""
        self._results = []
        return []

    def add(self, made: Processed) -> None:
        """See ShareCommits.

        Raises:
            StorageFull: the disk is full; nothing is committed.
        """
        segments = [
            self._placed(stream, partition, piece.num_rows, write(piece))
            for stream, partition, sent in made.outputs
            for piece in pieces(sent)
        ]
        positions = dict(made.progress.store_positions)
        for change in made.changes:
            count = change.records.num_rows
            positions[change.store] = positions.get(change.store, 0) + count
            change.keep(made.report.token, positions[change.store])
            for piece in pieces(change.records):
                data = change.data if piece.num_rows == count else write(piece)
                segments.append(self._placed(change.stream, change.partition, piece.num_rows, data))
        report = replace(made.report, positions=positions)
        self._results.append(TaskResult(report, tuple(segments)))

    def finish(self) -> list[TaskResult]:
        """See ShareCommits."""
        return self._results

    def _placed(self, stream: str, partition: int, count: int, data: bytes) -> Segment:
        """Records in the answer, or where they are in the file."""
        if len(data) <= self._left:
            self._left -= len(data)
            return SegmentWrite(stream, partition, count, data)
        try:
            start = self._append(data)
        except OSError as error:
            kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else LogError
            raise kind(f"cannot leave a batch's outputs in {self._path}: {error}; free space") from error
        return StoredSegment(stream, partition, count, str(self._path), start, len(data))

    def _append(self, data: bytes) -> int:
        """Add to the file; returns where the data begins. What a failed attempt has left goes with the folder."""
        private_directory(self._path.parent)
        with open(self._path, "ab", opener=private_opener) as file:
            start = file.tell()
            file.write(data)
        return start
