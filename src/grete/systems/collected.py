"""Transactions over `TransactionalStore.commit`, for systems that commit a whole group in one short step.

The embedded system is one: nothing is written and no lock is held while records are packed and checkpoints are
encoded, and a commit is one transaction of the file. Each slot is a scope of its own among the system's fences. Who
opens the slot raises it, so a commit of the holder before is refused, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from grete.errors import Fenced
from grete.keyed_log.base import Entry, KeyedLog
from grete.model.fence import Fence, slot_scope
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.transactions import NotWritten

if TYPE_CHECKING:
    from grete.arrow import pa


class SlotStore(Protocol):
    """The part of a system that these transactions stand on. Offsets of its partitions have no gaps."""

    def commit(self, group: CommitGroup) -> Mapping[tuple[str, int], int]:
        """See TransactionalStore."""

    def checkpoint_log(self, name: str) -> KeyedLog:
        """See System."""

    def take_slot(self, fences: Sequence[Fence], scope: str) -> Fence:
        """Raise the scope by one and return the right to it, in one step, so that no two ever have the same.

        Raises:
            Fenced: the scope of one of `fences` has seen a higher epoch; nothing was raised.
        """

    def check_fences(self, fences: Iterable[Fence]) -> None:
        """Look whether each still holds; a commit looks again, inside its transaction.

        Raises:
            Fenced: the first scope that has seen a higher epoch.
        """


class CollectedTransactions:
    """The transactions of one slot: what is sent is collected, and `commit` makes one group of it.

    Implements `Transactions`. Besides what that says, errors of the store come as they are: InDoubt ends the process,
    since only a file that is opened again shows what is in it.
    """

    def __init__(self, store: SlotStore, fences: Sequence[Fence], slot: int) -> None:
        self._store = store
        self._held = tuple(fences)
        self._scope = slot_scope(fences[0], slot)
        self._right: Fence | None = None
        self._forget()

    def _forget(self) -> None:
        self._segments: list[SegmentWrite] = []
        self._entries: list[Entry] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._log = ""

    @property
    def is_open(self) -> bool:
        """See Transactions."""
        return self._right is not None

    @property
    def has_timed_out(self) -> bool:
        """See Transactions."""
        return False

    def open(self, deadline_s: float) -> None:
        """See Transactions."""
        self.drop()
        self._right = self._store.take_slot(self._held, self._scope)

    def drop(self) -> None:
        """See Transactions."""
        self._right = None
        self._forget()

    def close(self) -> None:
        """See Transactions."""
        self.drop()

    def fits(self, streams: Sequence[str], *, again: bool = False) -> bool:
        """See Transactions: any streams do."""
        return False

    def check_sizes(self, stream: str, partition: int, records: pa.RecordBatch) -> None:
        """See Transactions: `System.largest_record` is all there is to observe."""

    def begin(self) -> None:
        """See Transactions."""
        self._forget()

    def send_batch(
        self,
        stream: str,
        partition: int,
        records: pa.RecordBatch,
        *,
        after: int | None = None,
        packed: bytes | None = None,
    ) -> None:
        """See Transactions."""
        from grete.systems.records import pieces, write  # Arrow, which looking at jobs does not need

        first = after
        for piece in pieces(records):
            count = piece.num_rows
            data = packed if packed is not None and count == records.num_rows else write(piece)
            self._segments.append(SegmentWrite(stream, partition, count, data, first))
            first = None if first is None else first + count
        if first is not None:
            self._ends[stream, partition] = first

    def settle(self, deadline_s: float) -> Mapping[tuple[str, int], int]:
        """See Transactions: of partitions sent to with `after`, and of keyed logs at least."""
        return self._ends

    def send_entries(self, topic: str, entries: Sequence[Entry], now_ms: int) -> None:
        """See Transactions. The store stamps them."""
        self._log = topic
        self._entries += entries
        self._ends[topic, 0] = 1 + self._store.checkpoint_log(topic).end() + len(self._entries)

    def check_fence(self) -> None:
        """See Transactions."""
        self._store.check_fences(self._held)

    def abort(self, deadline_s: float) -> None:
        """See Transactions."""
        self._forget()

    def commit(self, deadline_s: float) -> None:
        """See Transactions."""
        group = CommitGroup(self._fences(), self._segments, self._log, self._entries)
        self._forget()
        try:
            self._store.commit(group)
        except Fenced as error:
            if error.scope != self._scope:
                raise
            # without its cause, which would be read as the container's own end by `spark.failures.translation`
            raise NotWritten(
                f"another worker has taken {self._scope} over, as its number {error.seen}"
            ) from None

    def confirm(self) -> None:
        """See Transactions: what is committed can be read."""

    def await_readable(self, timeout_s: float) -> str:
        """See Transactions."""
        return ""

    def _fences(self) -> tuple[Fence, ...]:
        assert self._right is not None, "the slot is open"
        return *self._held, self._right
