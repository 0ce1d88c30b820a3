"""The part of the system port that commits: outputs, changelog records and checkpoints in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from grete.keyed_log.base import Entry, Fence


class Segment(Protocol):
    """Records for one stream partition, wherever they are until they are committed; see `SegmentWrite`."""

    @property
    def stream(self) -> str:
        """The stream's name."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def count(self) -> int:
        """How many records."""

    @property
    def data(self) -> bytes:
        """The records, packed. May be read from a file each time."""


@dataclass(frozen=True, slots=True)
class SegmentWrite:
    """Records for one stream partition, to be appended next to each other.

    `data` is an Arrow IPC stream of columns `key: binary`, `value: binary` (null = tombstone on compacted
    streams), `timestamp_ms: int64`; `count` its number of rows. Packed on the executors so that the driver's
    commit moves bytes and never rows.
    """

    stream: str
    partition: int
    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """Everything that becomes visible together: outputs, changelog records and the checkpoints they belong to."""

    fences: Sequence[Fence]
    segments: Sequence[Segment]
    checkpoint_log: str
    checkpoint_entries: Sequence[Entry]


class TransactionalStore(ABC):
    """A system whose streams and checkpoint log can be written in one transaction."""

    @abstractmethod
    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """Make the whole group visible, or nothing. Durable on return.

        Returns the upcoming offset of every (stream, partition) written. The fences are checked inside the
        transaction.

        Raises:
            Fenced: another incarnation has taken over; nothing was written.
            InDoubt: the outcome is unknown: end the process; the next start reads what is there.
            StorageFull: nothing was written.
        """

    def highest_epoch(self, scopes: str) -> int:
        """The highest epoch that a scope whose name begins so has seen; 0 for none, and where it is unknown."""
        return 0

    @abstractmethod
    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """Raise each scope; every lower epoch is refused from now on.

        Raises:
            Fenced: a scope is above it already.
        """
