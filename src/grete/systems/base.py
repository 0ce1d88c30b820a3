"""The system port: an input and output system as the control plane, containers and executors see it.

Each process opens its own from the configuration alone; references to secrets are resolved there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.api import Serde
from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import StreamError
from grete.keyed_log.base import Fence, KeyedLog, Record
from grete.model.capabilities import Capabilities
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import Headers, StreamPolicy, StreamSpec
from grete.systems.admin import SystemAdmin
from grete.systems.commit_group import TransactionalStore
from grete.systems.inputs import Inputs, LookedFor, ReadableSystem
from grete.systems.partitioner import Partitioner, partition_of
from grete.systems.transactions import Transactions

Change = tuple[bytes, bytes | None]
"""Key and value of a changelog record; None deletes."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record to append. Without `partition` the key decides; without a key, partition 0."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    partition: int | None = None
    headers: Headers = ()


def by_partition(
    stream: str, messages: Iterable[Message], partitions: int, partitioner: Partitioner
) -> dict[int, list[Message]]:
    """The messages of each partition in their order, in the order of the partitions.

    Raises:
        StreamError: one names a partition that the stream does not have.
    """
    found: dict[int, list[Message]] = {}
    for message in messages:
        found.setdefault(partition_for(stream, message, partitions, partitioner), []).append(message)
    return dict(sorted(found.items()))


def partition_for(stream: str, message: Message, partitions: int, partitioner: Partitioner) -> int:
    """Where a message goes: its own partition, else its key's; the first one for a message without key.

    Raises:
        StreamError: it names a partition that the stream does not have.
    """
    if message.partition is None:
        return 0 if message.key is None else partitioner(message.key, partitions)
    check_partition(stream, message.partition, partitions)
    return message.partition


def check_partition(stream: str, partition: int, partitions: int) -> None:
    """Refuse a partition that a stream of so many does not have.

    Raises:
        StreamError: it is none of them.
    """
    if not 0 <= partition < partitions:
        raise StreamError(f"{stream} has partitions 0 to {partitions - 1}, not {partition}")


@dataclass(frozen=True, slots=True)
class SystemContext:
    """Arguments with which a system is opened. `settings` are the job's, with references to secrets unresolved."""

    settings: Settings
    name: str
    home: Path
    clock: Clock


class GroupOffsets(ABC):
    """Where a consumer group stands, for the system's own tools to show; nothing of ours reads it.

    Made, used and closed by one thread. A system may be closed before what it has made of these.
    """

    @abstractmethod
    def write(self, offsets: Mapping[SystemStreamPartition, int]) -> None:
        """Let the group's next record to read be these, forwards or backwards; other partitions stay as they are.

        Of several partitions some may be written when an error is raised. Takes some seconds at most.

        Raises:
            Fenced: another incarnation has taken over. Some systems cannot detect it.
            GreteError: no answer, or refused, as when a consumer is a member of the group; with the way out.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections."""


class System(SystemAdmin, ReadableSystem, TransactionalStore):
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
        """An id that differs between the stream and one of the same name created after its deletion.

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
        """Append messages outside any commit group, all or none, durable on return; returns how many.

        Raises:
            StreamNotFound: no such stream.
            StreamError: no such partition, or refused; nothing was written.
        """

    def inputs(self, clock: Clock) -> Inputs:
        """A reader of what arrives, for one share, which closes it.

        To be replaced by systems that can wake who waits.
        """
        return LookedFor(self, clock)

    @abstractmethod
    def changes(
        self,
        stream: str,
        partition: int,
        start: int,
        end: int,
        *,
        copied_ms: int = 0,
        has_times: bool = False,
    ) -> Iterator[Change]:
        """Changelog records with start <= offset < end, in order, for a copy of the state at `start` (0: empty).

        `copied_ms` is when the copy was known to be the state at `start`, by the wall clock of its machine. With
        `has_times` values are stamped with the times of their records (`grete.application.expiry`). From the empty
        state on, what retention has removed is left out.

        Raises:
            OffsetOutOfRange: they do not bring such a copy to the state at `end`; it must start again. This may
                show at the end only.
        """

    def partitioner(self, stream: SystemStream, key_serde: Serde) -> Partitioner:
        """What chooses the partition of a key that is sent to the stream.

        `key_serde` is the serde of its keys; of one that this process cannot load, that of grete's it derives from.
        """
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

    @abstractmethod
    def transactions(self, fences: Sequence[Fence], slot: int, streams: Sequence[str]) -> Transactions:
        """The transactions of one slot, not opened yet. They write to `streams`, mostly.

        `fences` are the container's, whose slot it is, and that of its epoch: nothing is committed unless all hold.
        Each worker of StreamTasks commits by some. Where `commit` is one short step, `CollectedTransactions` makes
        them of it.
        """

    @abstractmethod
    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        """The records of a keyed log above `after`, up to now: what was open when this was called is decided.

        Raises:
            NotWritten, LogUnreachable: it was not decided in time, or there was no answer.
        """

    def keep_fences(self, fences: Sequence[Fence]) -> None:
        """Called between batches: for systems that forget fences with time, it renews them now and then.

        Raises:
            Fenced: a scope is above its fence.
        """

    def housekeeping(self, policies: Sequence[StreamPolicy], fences: Sequence[Fence]) -> Callable[[], object]:
        """A function to call between batches, under the fences: it keeps these, and streams as `policies` say.

        Systems that keep their streams small by themselves take no notice of `policies`.
        """
        return lambda: self.keep_fences(fences)

    def forget(self) -> None:
        """Called when another user goes on with this object: what is remembered of streams may have changed."""

    def group_offsets(self, group: str, fence: Fence | None) -> GroupOffsets | None:
        """The offsets of a consumer group, written under the fence; None for a system without consumer groups.

        Without a fence, as it is another system's, who was succeeded may write once more.
        """
        return None
