"""The part of the system port that commits: outputs, changelog records and checkpoints in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grete.errors import LogCorrupted
from grete.keyed_log.base import Entry, Fence


@dataclass(frozen=True, slots=True)
class SegmentWrite:
    """Records for one stream partition, to be appended next to each other.

    `data` is an Arrow IPC stream of columns `key: binary`, `value: binary` (null = tombstone on compacted
    streams), `timestamp_ms: int64`; `count` its number of rows. Packed before the transaction begins, which moves
    bytes and never rows. `first` is the offset that the first one must get, where a partition has one writer and its
    offsets have no gaps.
    """

    stream: str
    partition: int
    count: int
    data: bytes
    first: int | None = None


def check_first(segment: SegmentWrite, end: int) -> None:
    """Inside the transaction: whether the segment begins where it has to, its partition ending at `end`.

    Raises:
        LogCorrupted: it does not, and it says where.
    """
    if segment.first is not None and segment.first != end:
        raise LogCorrupted(
            f"{segment.stream} partition {segment.partition} ends at {end}, expected {segment.first}: another "
            f"program writes to this changelog; nothing was committed"
        )


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """Everything that becomes visible together: outputs, changelog records and the checkpoints they belong to.

    `segments` are gone through once, inside the transaction: they may be read from where they were staged meanwhile.
    """

    fences: Sequence[Fence]
    segments: Iterable[SegmentWrite]
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
            LogCorrupted: another program has written to a partition whose segment names its `first` offset; nothing
                was written.
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

    @abstractmethod
    def begin_epoch(self, fence: Fence) -> Fence:
        """Raise the fence of a container, and return the right of its next epoch, in the scope `epoch_scope(fence)`.

        From now on nothing is committed under the right of an earlier epoch, by no slot, whoever opens it next or
        does not.

        Raises:
            Fenced: the container's scope is above it already.
        """
