"""The part of the system port that looks at streams and manages them; no record is read or written.

Offsets are strings at this border, as in Samza: only the system knows how to order them. An SSP's *checkpoint*
offset is the last one processed; a *starting* offset is the next one to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grete.errors import StreamError
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec

Range = tuple[int, int]
"""Offsets from the first to before the second."""


@dataclass(frozen=True, slots=True)
class KeyOrigin:
    """Where the keys of a partition were before the stream grew: in `partition`, before its offset `upcoming`."""

    partition: int
    upcoming: str


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets that a partition holds. `oldest` and `newest` are None when it is empty; `upcoming` is the next offset.

    `origin` is known of partitions that were added to a stream, by systems that remember it.
    """

    oldest: str | None
    newest: str | None
    upcoming: str
    origin: KeyOrigin | None = None

    @classmethod
    def held(cls, oldest: int, upcoming: int, origin: KeyOrigin | None = None) -> PartitionOffsets:
        """Of a partition whose offsets are numbers, from `oldest` to before `upcoming`."""
        if oldest >= upcoming:
            return cls(None, None, str(upcoming), origin)
        return cls(str(oldest), str(upcoming - 1), str(upcoming), origin)


class OffsetAdmin(ABC):
    """Offsets of a system's streams: found, compared, and by time."""

    @abstractmethod
    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """Oldest, newest and upcoming offset of each partition.

        Raises:
            StreamNotFound: no such stream.
        """

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        """As `offsets`, with None for a partition that is unreachable now, as one whose only broker is away.

        Raises:
            StreamNotFound: no such stream.
            StreamUnreachable: no answer at all.
        """
        return self.offsets(stream)

    def sizes(self, ranges: Mapping[SystemStreamPartition, Range]) -> Mapping[SystemStreamPartition, int]:
        """About how many bytes the records of each range take; empty for a system without such figures."""
        return {}

    def end_within(self, ssp: SystemStreamPartition, offsets: Range, size: int) -> int:
        """Where a range has to end to take about `size` bytes; it keeps one record at least."""
        return offsets[1]

    def offsets_after(self, offsets: Mapping[SystemStreamPartition, str]) -> dict[SystemStreamPartition, str]:
        """The starting offset that follows each last processed offset (S2-88: 45 -> 46).

        To be replaced, as `compare`, by systems whose offsets are no whole numbers.
        """
        return {ssp: str(int(offset) + 1) for ssp, offset in offsets.items()}

    def compare(self, left: str, right: str) -> int:
        """Negative, zero or positive, as left is before, at or after right."""
        return int(left) - int(right)

    def offset_at(self, ssp: SystemStreamPartition, timestamp_ms: int) -> str:
        """The first offset whose record is stamped `timestamp_ms` or later; upcoming when there is none.

        Raises:
            StreamError: the system has no such index.
        """
        raise StreamError(f"system {ssp.system!r} cannot find records by their time; name an offset instead")


class SystemAdmin(OffsetAdmin):
    """Streams of a system: their partitions and offsets, and how they are created, grown and deleted."""

    @abstractmethod
    def partition_count(self, stream: str) -> int:
        """How many partitions the stream has now.

        Raises:
            StreamNotFound: no such stream.
        """

    @abstractmethod
    def create_stream(self, spec: StreamSpec) -> None:
        """Create it; one that exists with the same shape is fine.

        Raises:
            StreamError: it exists with another partition count, or the system cannot create streams (S2-10).
        """

    def add_partitions(self, stream: str, partitions: int) -> None:
        """Let the stream have `partitions` partitions; as many as there are is fine. Records stay where they are.

        From now on a key may go to another partition: to p mod the old count or to one that is congruent to it, when
        the new count is a multiple of the old one.

        Raises:
            StreamNotFound: no such stream.
            StreamError: fewer than there are, or the system cannot add partitions.
        """
        raise StreamError(f"partitions cannot be added to {stream!r} here; use the tools of its system")

    def delete_stream(self, stream: str) -> None:
        """Remove the stream with every record.

        Raises:
            StreamNotFound: no such stream.
            StreamError: refused, or the system cannot remove streams.
        """
        raise StreamError(f"{stream!r} cannot be deleted here; use the tools of its system")

    @abstractmethod
    def streams(self) -> Sequence[str]:
        """The names of all streams, sorted."""

    @abstractmethod
    def close(self) -> None:
        """Release connections."""
