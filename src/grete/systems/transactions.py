"""Transactions of workers: outputs, changelog records and checkpoints of a share, committed where it was processed.

The driver never sees a record. On brokers a transaction is open while records are sent; systems that commit in one
step collect them first (`systems.collected`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from grete.errors import StreamError
from grete.kafka.outcome import NotWritten as NotWritten
from grete.kafka.outcome import OutcomeUnknown as OutcomeUnknown
from grete.keyed_log.base import Entry

if TYPE_CHECKING:
    from grete.arrow import pa


class RecordTooLarge(StreamError):
    """A record that its stream does not take; nothing was sent. `row` is its place among those that were given."""

    def __init__(self, message: str, row: int) -> None:
        self.row = row
        super().__init__(message)


class Transactions(Protocol):
    """The transactions of one slot of a scope; only who opened it last can commit. Used by one thread.

    The order is `begin`, `send_batch`, `settle`, `send_entries`, `settle`, `commit`; `abort` instead after an error.
    """

    @property
    def is_open(self) -> bool:
        """Whether we hold the slot as far as we know."""

    @property
    def has_timed_out(self) -> bool:
        """Whether the last transaction failed after the system had waited for it as long as it waits for one."""

    def open(self, deadline_s: float) -> None:
        """Take the slot over. Afterwards no transaction of its last holder is open, and none will be.

        Raises:
            Fenced: the scope has seen a higher epoch.
            NotWritten: no answer in time.
        """

    def drop(self) -> None:
        """Let the slot go; it is to be opened again before it is used."""

    def close(self) -> None:
        """Let the slot go for good. The share that opens it next may go on with what this process has open of it."""

    def fits(self, streams: Sequence[str], *, again: bool = False) -> bool:
        """Take the streams that will be written, and learn what sizes they take; may drop the slot.

        `again` reads what is remembered of them. Returns whether that has changed since the last call.
        """

    def check_sizes(self, stream: str, partition: int, records: pa.RecordBatch) -> None:
        """Raises RecordTooLarge for the first record that the stream does not take."""

    def begin(self) -> None:
        """Begin a transaction, or raise NotWritten."""

    def send_batch(
        self,
        stream: str,
        partition: int,
        records: pa.RecordBatch,
        *,
        after: int | None = None,
        packed: bytes | None = None,
    ) -> None:
        """Hand over records of one partition, in order, or raise NotWritten.

        `after` is where the partition ends, as its only writer knows; where offsets have no gaps, a commit is refused
        with LogCorrupted when it ends elsewhere. `packed` is `records.write(records)`, of who has it already.
        """

    def settle(self, deadline_s: float) -> Mapping[tuple[str, int], int]:
        """Wait until everything may be committed; the offset after the last record of each partition.

        Of partitions that were not sent to with `after` there may be none, since others append to them. Of a keyed
        log it is a lower bound where others append to it.

        Raises:
            NotWritten: refused, or no answer in time.
        """

    def check_fence(self) -> None:
        """Look whether the scope has seen a higher epoch, before what cannot be undone.

        Raises:
            Fenced: it has.
            NotWritten: no answer.
        """

    def send_entries(self, topic: str, entries: Sequence[Entry], now_ms: int) -> None:
        """Hand over records of a keyed log, or raise NotWritten."""

    def abort(self, deadline_s: float) -> None:
        """Undo the transaction."""

    def commit(self, deadline_s: float) -> None:
        """Make it durable and visible.

        Raises:
            NotWritten: it never will be.
            OutcomeUnknown: it may be; the slot must be opened again before anything else.
        """

    def confirm(self) -> None:
        """Wait until readers see what was committed, which some brokers have to be asked for.

        Raises:
            OutcomeUnknown: they do not for long; the slot must be opened again before anything else.
        """

    def await_readable(self, timeout_s: float) -> str:
        """Wait until readers get to what is in the slot's streams now; why they do not in time, "" if they do."""
