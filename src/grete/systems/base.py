"""The system port: an input and output system as the control plane, containers and executors see it.

Each process opens its own from the configuration alone; references to secrets are resolved there.

Offsets are strings at this border, as in Samza: only the system knows how to order them. An SSP's *checkpoint*
offset is the last one processed; a *starting* offset is the next one to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from grete.clock import Clock
from grete.errors import StreamError
from grete.keyed_log.base import Entry, Fence, KeyedLog, Record
from grete.model.capabilities import Capabilities
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import StreamPolicy, StreamSpec
from grete.systems.partitioner import Partitioner, partition_of
from grete.systems.transactions import Transactions

if TYPE_CHECKING:
    import pyarrow as pa

Range = tuple[int, int]
"""Offsets from the first to before the second."""
Change = tuple[bytes, bytes | None]
"""Key and value of a changelog record; None deletes."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the keys of a partition were before the stream grew: in `partition`, before its offset `upcoming`."""

    partition: int
    upcoming: str


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What a partition holds. `oldest` and `newest` are None when it is empty; `upcoming` is the next offset.

    `origin` is known of partitions that were added to a stream, by systems that remember it.
    """

    oldest: str | None
    newest: str | None
    upcoming: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A record to append. Without `partition` the key decides; without a key, partition 0."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SystemContext:
    """What a system is opened with. `config` is the job's, with references to secrets unresolved."""

    config: Mapping[str, str]
    name: str
    home: Path
    clock: Clock


class SystemAdmin(ABC):
    """What a system says about its streams."""

    @abstractmethod
    def partition_count(self, stream: str) -> int:
        """How many partitions the stream has now.

        Raises:
            StreamNotFound: no such stream.
        """

    @abstractmethod
    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """Oldest, newest and upcoming offset of each partition.

        Raises:
            StreamNotFound: no such stream.
        """

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        """As `offsets`, with None for a partition that nobody answers for now, as one whose only broker is away.

        Raises:
            StreamNotFound: no such stream.
            StreamUnreachable: nobody answers at all.
        """
        return self.offsets(stream)

    def sizes(self, ranges: Mapping[SystemStreamPartition, Range]) -> Mapping[SystemStreamPartition, int]:
        """About how many bytes the records of each range take; empty for a system that cannot tell."""
        return {}

    def end_within(self, ssp: SystemStreamPartition, offsets: Range, size: int) -> int:
        """Where a range has to end to take about `size` bytes; it keeps one record at least."""
        return offsets[1]

    @abstractmethod
    def offsets_after(self, offsets: Mapping[SystemStreamPartition, str]) -> dict[SystemStreamPartition, str]:
        """The starting offset that follows each last processed offset (S2-88: 45 -> 46)."""

    @abstractmethod
    def compare(self, left: str, right: str) -> int:
        """Negative, zero or positive, as left is before, at or after right."""

    def offset_at(self, ssp: SystemStreamPartition, timestamp_ms: int) -> str:
        """The first offset whose record is stamped `timestamp_ms` or later; upcoming when there is none.

        Raises:
            StreamError: the system has no such index.
        """
        raise StreamError(f"system {ssp.system!r} cannot find records by their time; name an offset instead")

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
        """The highest epoch that a scope whose name begins so has seen; 0 for none, and where nobody can tell."""
        return 0

    @abstractmethod
    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """Raise each scope; every lower epoch is refused from now on.

        Raises:
            Fenced: a scope is above it already.
        """


class GroupOffsets(ABC):
    """Where a consumer group stands, for the system's own tools to show; nothing of ours reads it.

    Made, used and closed by one thread. A system may be closed before what it has made of these.
    """

    @abstractmethod
    def write(self, offsets: Mapping[SystemStreamPartition, int]) -> None:
        """Let the group's next record to read be these, forwards or backwards; other partitions stay as they are.

        Of several partitions some may be written when an error is raised. Takes some seconds at most.

        Raises:
            Fenced: another incarnation has taken over. A system that cannot tell does not raise it.
            GreteError: no answer, or refused, as when a consumer is a member of the group; says the way out.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections."""


class System(SystemAdmin, TransactionalStore):
    """A system of a job: its streams, its commits and its checkpoint logs. Safe to use from several threads."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """As the system's kind has them, unless they follow from the configuration."""

    @abstractmethod
    def checkpoint_log(self, name: str) -> KeyedLog:
        """The keyed log `name` beside the streams, made when it is not there. It is the system's, and closed with it.

        What `commit` writes as `checkpoint_entries` is in the log that it names.
        """

    @abstractmethod
    def ensure_stream(self, spec: StreamSpec) -> None:
        """Create the stream, or add partitions to one that has fewer; more than asked for are fine.

        Raises:
            StreamError: it exists with another cleanup policy.
        """

    @abstractmethod
    def stream_uid(self, stream: str) -> str:
        """What tells the stream from one of the same name that is created after its deletion.

        Raises:
            StreamNotFound: no such stream.
        """

    @abstractmethod
    def is_compacted(self, stream: str) -> bool:
        """Whether only the last record of each key is kept.

        Raises:
            StreamNotFound: no such stream.
        """

    @abstractmethod
    def append(self, stream: str, messages: Iterable[Message]) -> int:
        """Append messages outside any commit group, all or none, durable on return; says how many.

        Raises:
            StreamNotFound: no such stream.
            StreamError: no such partition, or refused; nothing was written.
        """

    @abstractmethod
    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(offset of the first row, columns key, value, timestamp_ms) for start <= offset < end, in order.

        A fourth column, where there is one, has the offsets; without it they are consecutive. `end` is at most the
        upcoming offset, which it is when it is left out. One range after the other: an iterator that was left ends
        with the next read.

        Raises:
            OffsetOutOfRange: `start` is below the oldest offset or above the upcoming one.
        """

    @abstractmethod
    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[Change]:
        """Changelog records with start <= offset < end, in order, for a copy of the state at `start` (0: empty).

        `copied_ms` is when the copy was known to be the state at `start`, by the wall clock of its machine.

        Raises:
            OffsetOutOfRange: they do not bring such a copy to the state at `end`; it must start again. This may
                show at the end only.
        """

    def partitioner(self, stream: SystemStream) -> Partitioner:
        """The function that chooses the partition of a key that is sent to the stream."""
        return partition_of

    @abstractmethod
    def largest_record(self, stream: str) -> int:
        """How many bytes key and value of a record of the stream may have together.

        Raises:
            StreamNotFound: no such stream.
        """

    @abstractmethod
    def intact_from(self, stream: str, partition: int) -> int:
        """The first position at which the state that a compacted stream holds is known; later ones are known as well.

        Of an earlier position compaction may have removed records that a later one of their key has replaced.
        """

    def transactions(self, fence: Fence, slot: int, streams: Sequence[str]) -> Transactions:
        """The transactions of one slot of the fence's scope, not opened yet. They write to `streams`, mostly.

        Asked only of systems with the capability `commits_on_executors`.
        """
        raise NotImplementedError(f"{type(self).__name__} commits on the driver")

    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        """The records of a keyed log above `after`, up to now: what was open when this was called is decided.

        Asked as `transactions`.

        Raises:
            NotWritten: it was not decided in time, or there was no answer.
        """
        raise NotImplementedError(f"{type(self).__name__} commits on the driver")

    def keep_fence(self, fence: Fence) -> None:
        """Called between batches: a system that forgets fences in time hears it again, now and then.

        Raises:
            Fenced: the scope is above it.
        """

    def housekeeping(self, policies: Sequence[StreamPolicy], fence: Fence) -> Callable[[], object]:
        """A function to call between batches, under the fence: it keeps the fence, and streams as `policies` say.

        Systems that keep their streams small by themselves take no notice of `policies`.
        """
        return lambda: self.keep_fence(fence)

    def group_offsets(self, group: str, fence: Fence) -> GroupOffsets | None:
        """The offsets of a consumer group, written under the fence; None for a system without consumer groups."""
        return None
