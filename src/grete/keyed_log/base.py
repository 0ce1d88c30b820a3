"""The keyed log: a durable, ordered log of keyed bytes with fencing. Coordinator stream and checkpoints live in it.

The promise, whatever the back end:

- **All or nothing.** `append` makes every entry of the call readable, next to each other and in order, or none.
- **Durable on return.** When `append` returns, a power cut loses nothing of it.
- **Fenced.** A writer that names a fence is refused once the scope was raised to a higher epoch; the
  check and the append are one atomic step, so a process that was paused in between can not slip through.
- **Three results.** `append` returns, raises (nothing was written), or raises `InDoubt`. After `InDoubt` the
  caller calls `resolve(append_id)`; a retry with the same id writes at most one copy.
- **Compaction keeps the last entry of each key**, never reorders, never reuses offsets. A tombstone (value None)
  may be dropped after it has shadowed its key; an empty value is not a tombstone.
- **Streaming.** `read` holds a bounded number of records; the log's length never decides memory.

Not promised: order between logs, and freshness of a second process's `read` that began before an append.
The mistake an implementer will make: checking the fence before the transaction instead of inside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from grete.errors import LogError
from grete.model.fence import Fence as Fence

TOMBSTONE_RETENTION_MS = 24 * 60 * 60 * 1000
"""Compaction leaves tombstones for a day: a reader that was away for a night still gets the deletion."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record to append. `value` None is a tombstone: it deletes the key."""

    key: bytes
    value: bytes | None


class Record(NamedTuple):
    """A record as read. `epoch` is the fence's epoch under which it was written, None for tools.

    `timestamp_ms` is the writer's wall clock: for people, never for order. A tuple, since a bootstrap makes a
    million of them: 0.3 µs each, a frozen dataclass takes 0.8.
    """

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    epoch: int | None = None


class AppendSignal(Protocol):
    """Tells that something may have been appended. Used by one thread."""

    def descriptor(self) -> int | None:
        """Readable once that is so, until `drain`; None while nothing tells it."""

    def drain(self) -> None:
        """Take what was told, before a look: what comes after it is told again."""

    def close(self) -> None:
        """Release it."""


class KeyedLog(ABC):
    """One log. Safe to use from several threads; many processes may have it open at once."""

    keeps_shadowed: ClassVar[bool] = False
    """Whether shadowed records stay until `drop_shadowed` is called; other logs are compacted by their systems."""
    stride: ClassVar[int] = 1
    """The most by which offsets of neighbours differ where nothing was dropped between them."""

    @abstractmethod
    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """Append all entries atomically and return the offset of the last one.

        An empty call returns `end()` after checking the fence. `append_id` (a random one when absent) is
        remembered with the entries, for at least 10,000 later offsets: appending the same id again writes nothing
        and returns what the first append returned.

        Raises:
            Fenced: the scope has seen a higher epoch. A higher own epoch raises the scope.
            InDoubt: the outcome is unknown; resolve before anything else.
            StorageFull: nothing was written.
        """

    def append_urgently(self, entries: Sequence[Entry], *, fence: Fence | None = None) -> int:
        """As `append`, for the few records that have to be written on a full disk too: they may use a reserve."""
        return self.append(entries, fence=fence)

    @abstractmethod
    def resolve(self, append_id: str) -> int | None:
        """The last offset of the append with this id, or None when it never became durable and never will.

        Before it answers, it makes sure that a later crash cannot change the answer.
        """

    @abstractmethod
    def raise_fence(self, fence: Fence) -> None:
        """Raise the scope to this epoch, so that every lower one is refused from now on. Durable on return.

        Raises:
            Fenced: the scope is above it already.
        """

    @abstractmethod
    def claim(self, fence: Fence) -> None:
        """As `raise_fence`, for an epoch that shall be one process's alone: that of a leader that was just elected.

        Of two that claim one epoch the second is refused. So is one whose own first attempt was done without an
        answer: an epoch is lost, and nothing else.

        Raises:
            Fenced: the scope is at this epoch or above it already.
            InDoubt: the outcome is unknown; the epoch may not be used.
        """

    @abstractmethod
    def read(self, after: int = -1) -> Iterator[Record]:
        """Every record with an offset above `after`, in order, up to the end as it was when reading began.

        Raises:
            LogCorrupted: a record fails its hash chain. The records before it have been yielded.
        """

    @abstractmethod
    def end(self) -> int:
        """The offset of the last record ever appended, -1 when there is none. Compaction never lowers it."""

    @abstractmethod
    def wait(self, after: int, timeout_s: float) -> bool:
        """Block until there is a record above `after`, at most `timeout_s`. Says whether there is one."""

    def signal(self) -> AppendSignal | None:
        """What tells that something was appended, closed by the caller; None where one has to look."""
        return None

    @abstractmethod
    def compact(self) -> int:
        """Drop records that a later record of the same key shadows; returns how many went. Readers go on."""

    def drop_shadowed(
        self,
        *,
        after: int = -1,
        before: int | None = None,
        whole_from: Callable[[bytes], int] | None = None,
        apart_ms: int | None = None,
    ) -> int:
        """As `compact`, of what may go while the log is in use; nothing where `keeps_shadowed` is false.

        With `before`, records from this offset on stay, and shadow nothing; so those up to `after`. `whole_from` says
        so of each key. What is left below is the state at that offset. With `apart_ms` a record shadows only those
        of the same span of so many milliseconds, so that the last of each span stays.
        """
        return 0

    def delete(self) -> None:
        """Remove the log with every record; its scopes stay fenced. From then on it can only be closed.

        Raises:
            LogError: it cannot be removed from here.
        """
        raise LogError("this log cannot be removed from here; use the tools of its system")

    @abstractmethod
    def close(self) -> None:
        """Release everything. Calling it twice is fine; using the log afterwards is a programming error."""
