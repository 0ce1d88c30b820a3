"""Transactions of workers whose outputs may be on hubs: these are sent first, the other system commits the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grete.arrow import pa
from grete.keyed_log.base import Entry
from grete.systems.commit_group import SegmentWrite
from grete.systems.records import pieces, write
from grete.systems.transactions import Transactions

Ends = Mapping[tuple[str, int], int]


class HubTransactions:
    """Implements `Transactions`, but for records on hubs: `settle` sends them, and they stay when the rest fails.

    Before that it looks at the fence, so a process that was succeeded sends nothing more.
    """

    def __init__(
        self,
        other: Transactions,
        beside: Callable[[str], str | None],
        send: Callable[[Sequence[SegmentWrite]], Ends],
    ) -> None:
        """`beside` is a stream's name in the other system, None for a hub; `send` sends to hubs."""
        self._other = other
        self._beside = beside
        self._send = send
        self._forget()

    def _forget(self) -> None:
        self._waiting: list[SegmentWrite] = []
        self._names: dict[str, str] = {}
        self._ends: dict[tuple[str, int], int] = {}

    @property
    def is_open(self) -> bool:
        """See Transactions."""
        return self._other.is_open

    @property
    def has_timed_out(self) -> bool:
        """See Transactions."""
        return self._other.has_timed_out

    def open(self, deadline_s: float) -> None:
        """See Transactions."""
        self._other.open(deadline_s)

    def drop(self) -> None:
        """See Transactions."""
        self._other.drop()

    def close(self) -> None:
        """See Transactions."""
        self._other.close()

    def fits(self, streams: Sequence[str], *, again: bool = False) -> bool:
        """See Transactions."""
        kept = [name for name in map(self._beside, streams) if name is not None]
        return self._other.fits(kept, again=again)

    def check_sizes(self, stream: str, partition: int, records: pa.RecordBatch) -> None:
        """See Transactions. A record that a hub does not take is refused when it is sent."""
        beside = self._beside(stream)
        if beside is not None:
            self._other.check_sizes(beside, partition, records)

    def begin(self) -> None:
        """See Transactions."""
        self._forget()
        self._other.begin()

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
        beside = self._beside(stream)
        if beside is None:
            self._waiting += [
                SegmentWrite(stream, partition, piece.num_rows, write(piece)) for piece in pieces(records)
            ]
            return
        self._names[beside] = stream
        self._other.send_batch(beside, partition, records, after=after, packed=packed)

    def settle(self, deadline_s: float) -> Ends:
        """See Transactions.

        Raises:
            Fenced: another container has taken over; nothing was sent.
            StreamError: a hub did not take a record; some may be there, and nothing else will be.
        """
        for (name, partition), end in self._other.settle(deadline_s).items():
            self._ends[self._names.get(name, name), partition] = end
        if self._waiting:
            self._other.check_fence()
            self._ends.update(self._send(self._waiting))
            self._waiting = []
        return self._ends

    def check_fence(self) -> None:
        """See Transactions."""
        self._other.check_fence()

    def send_entries(self, topic: str, entries: Sequence[Entry], now_ms: int) -> None:
        """See Transactions."""
        self._other.send_entries(topic, entries, now_ms)

    def abort(self, deadline_s: float) -> None:
        """See Transactions."""
        self._other.abort(deadline_s)

    def commit(self, deadline_s: float) -> None:
        """See Transactions."""
        self._other.commit(deadline_s)

    def confirm(self) -> None:
        """See Transactions."""
        self._other.confirm()

    def await_readable(self, timeout_s: float) -> str:
        """See Transactions."""
        return self._other.await_readable(timeout_s)
