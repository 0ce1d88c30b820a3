"""Keeps the streams of the embedded system small: merges, trims and compacts, a bounded piece at a time.

The container that writes the streams does it between two batches, under its fence. Every piece is one short
transaction of its own, read and computed before it begins: a crash leaves either what was there or what has
replaced it. Offsets never change.

- Small neighbours become one segment: programs that append a record at a time leave thousands.
- Retention drops whole segments from the front, of streams that ask for it, compacted or not, as Kafka does: those
  whose newest record is older than `retention_ms`, and while the rest is at least `retention_bytes` a partition.
- Compaction (see `local_compaction`) when the records that are old enough take as much as those that are clean, so
  that each is rewritten a bounded number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

from grete.clock import Clock
from grete.errors import StorageFull
from grete.model.fence import Fence
from grete.model.streams import StreamPolicy
from grete.sqlite_file import SqliteFile, check_fences
from grete.systems.local.compactor import (
    ENOUGH,
    SEGMENT_BYTES,
    CompactionLimits,
    Compactor,
    newest_ms,
    read_segment,
    rewrite,
)
from grete.systems.local.segment_rows import PartitionKey, Segment, segments_from, trim_in
from grete.systems.local.stream_rows import StreamInfo

_log = logging.getLogger(__name__)
_SMALL = 64 << 10
_ROUND_S = 30.0
_LOOKS_AT_ONCE = 16


class StreamsInFile(Protocol):
    """Streams and the file that they are in."""

    @property
    def file(self) -> SqliteFile:
        """The file below."""

    def stream(self, name: str) -> StreamInfo:
        """The stream's description."""


class Housekeeper:
    """Looks after some streams. Called by one thread."""

    def __init__(
        self,
        system: StreamsInFile,
        policies: Sequence[StreamPolicy],
        fences: Sequence[Fence],
        clock: Clock,
        limits: CompactionLimits | None = None,
    ) -> None:
        self._system = system
        self.policies = tuple(policies)
        self._fences = tuple(fences)
        self._clock = clock
        self._limits = limits or CompactionLimits()
        self._merged: dict[PartitionKey, int] = {}
        self._work: Iterator[bool] | None = None
        self._next_round_s = 0.0

    def step(self) -> bool:
        """Do one piece of work, if there is any; returns whether it did. A round looks at every partition once.

        Raises:
            Fenced: another incarnation has taken over; nothing was changed.
            LogError: the file's errors, as in a commit.
        """
        if self._work is None:
            if self._clock.monotonic_s() < self._next_round_s:
                return False
            self._work = self._round()
        work, self._work = self._work, None  # given up when it raises
        for _ in range(_LOOKS_AT_ONCE):
            try:
                did = next(work, None)
            except StorageFull as error:
                _log.warning("streams are not tidied up: %s", error)
                did = None
            if did is None:
                self._next_round_s = self._clock.monotonic_s() + _ROUND_S
                return False
            if did:
                self._work = work
                return True
        self._work = work
        return False

    def _round(self) -> Iterator[bool]:
        """True after a piece of work, false after a look at a partition."""
        for policy in self.policies:
            info = self._system.stream(policy.stream)
            for partition in range(info.partitions):
                if policy.partitions is not None and partition not in policy.partitions:
                    continue
                key = PartitionKey(info.id, partition)
                if info.compacted:
                    compactor = Compactor(self._file, key, self._fences, self._limits)
                    yield from compactor.run(self._clock.wall_ms() - policy.min_compaction_lag_ms)
                yield from self._trim(key, policy)
                yield from self._merge(key)
                yield False

    @property
    def _file(self) -> SqliteFile:
        return self._system.file

    def _merge(self, key: PartitionKey) -> Iterator[bool]:
        """Put one segment for many small neighbours, wherever there are enough of them."""
        while True:
            with self._file.reading() as connection:
                listed = segments_from(connection, key, self._merged.get(key, 0), 8 * ENOUGH)
            if not listed:
                return
            run = _small_neighbours(listed)
            # what is before the run will not become smaller; a run that may still grow is looked at again
            self._merged[key] = run[0].first if run else listed[-1].last + 1
            if len(run) >= ENOUGH:
                rewrite(self._file, key, self._fences, run)
                yield True
            elif len(listed) < 8 * ENOUGH:
                return

    def _trim(self, key: PartitionKey, policy: StreamPolicy) -> Iterator[bool]:
        if policy.retention_ms is None and policy.retention_bytes is None:
            return
        while True:
            with self._file.reading() as connection:
                listed = segments_from(connection, key, 0)
            gone = self._past_retention(key, policy, listed)
            if not gone:
                return
            with self._file.transaction() as connection:
                check_fences(connection, self._fences)
                trim_in(connection, key, gone[-1].last + 1)
            yield True

    def _past_retention(
        self, key: PartitionKey, policy: StreamPolicy, listed: Sequence[Segment]
    ) -> list[Segment]:
        """The oldest segments that may go, not more than are soon looked at."""
        size = sum(segment.size for segment in listed)
        gone = []
        for segment in listed[:ENOUGH]:
            too_much = policy.retention_bytes is not None and size - segment.size >= policy.retention_bytes
            if not too_much and not self._is_past(key, segment, policy.retention_ms):
                break
            size -= segment.size
            gone.append(segment)
        return gone

    def _is_past(self, key: PartitionKey, segment: Segment, retention_ms: int | None) -> bool:
        if retention_ms is None:
            return False
        batch = read_segment(self._file, key, segment)
        return batch is not None and newest_ms(batch) < self._clock.wall_ms() - retention_ms


def _small_neighbours(listed: Sequence[Segment]) -> list[Segment]:
    """The first run of small segments that is worth merging, else the one at the end."""
    run: list[Segment] = []
    size = 0
    for segment in listed:
        if segment.size >= _SMALL or size + segment.size > SEGMENT_BYTES:
            if len(run) >= ENOUGH:
                return run
            run, size = [], 0
        if segment.size < _SMALL:
            run.append(segment)
            size += segment.size
    return run
