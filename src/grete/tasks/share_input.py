"""The input of one share: where it stands in each partition, which of them may move, and what has come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from grete.clock import Clock
from grete.model.ids import SystemStreamPartition
from grete.systems.inputs import Arrived, Inputs, Span
from grete.tasks.read_order import ReadOrder, StreamOffsets

_NO_END = 2**63
_PASSED_S = 1.0
"""After this time a checkpoint is made for offsets alone that were passed without a record."""


class ShareInput:
    """Reads a share's partitions in the order that is to be kept. Used by one thread."""

    def __init__(
        self,
        inputs: Inputs,
        systems: Callable[[str], StreamOffsets],
        starting: Mapping[str, int],
        bootstrap: Sequence[str] = (),
        later: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`systems` gives a system by its name; `starting` has the next offset to read of each SSP, by its text."""
        self._inputs = inputs
        self._systems = systems
        self._ssps = {text: SystemStreamPartition.parse(text) for text in starting}
        self._positions = dict(starting)
        self._read_order = partial(ReadOrder, starting, bootstrap, later or {}, systems)
        self._order = self._read_order()
        self._ends: dict[str, int] | None = None
        self._left: list[Arrived] = []
        self._moved: set[str] = set()
        self._asked: Mapping[SystemStreamPartition, Span] | None = None
        self._waited: frozenset[str] = frozenset()

    @property
    def next_offsets(self) -> Mapping[str, int]:
        """The next offset of each SSP, by its text, after what was given."""
        return self._positions

    @property
    def is_at_the_end(self) -> bool:
        """Whether all that `stop_at_the_end` counted was given."""
        return self._ends is not None and all(self._positions[ssp] >= end for ssp, end in self._ends.items())

    def stop_at_the_end(self, before: Mapping[str, int]) -> None:
        """Nothing is given from now on that is not there now, nor what is at the offsets `before` or after them.

        Raises:
            StreamUnreachable: where a partition ends is not known, because no broker answers.
        """
        streams = {ssp.system_stream for ssp in self._ssps.values()}
        held = {stream: self._systems(stream.system).offsets(stream.stream) for stream in streams}
        self._ends = {
            text: min(int(held[ssp.system_stream][ssp.partition].upcoming), before.get(text, _NO_END))
            for text, ssp in self._ssps.items()
        }

    def leave_out(self, ssps: Collection[SystemStreamPartition]) -> None:
        """Give nothing of these any more: no task of the share wants them."""
        self._asked = None
        for ssp in ssps:
            self._positions.pop(str(ssp), None)
            self._ssps.pop(str(ssp), None)
            if self._ends is not None:
                self._ends.pop(str(ssp), None)

    def go_back(self, positions: Mapping[str, int]) -> None:
        """Stand at these offsets again, with nothing given after them."""
        self._positions = {ssp: positions[ssp] for ssp in self._positions}
        self._order = self._read_order()
        self._left, self._moved, self._asked = [], set(), None

    def poll(self, records: int, wait_s: float) -> list[Arrived]:
        """About so many records at most; waits so long at most while there are none.

        Raises:
            GreteError: see `Inputs.poll` and `ReadOrder.waits`.
        """
        arrived, self._left = self._left, []
        arrived = arrived or self._inputs.poll(self._wanted(), records, wait_s)
        for one in arrived:
            self._move(str(one.ssp), one.next_offset)
        return arrived

    def _move(self, ssp: str, offset: int) -> None:
        self._positions[ssp] = offset
        self._moved.add(ssp)
        self._asked = None

    def take_moved(self) -> dict[str, int]:
        """The next offset of each SSP of which something was given since the last time."""
        moved, self._moved = self._moved, set()
        return {ssp: self._positions[ssp] for ssp in sorted(moved) if ssp in self._positions}

    def put_back(self, unread: Sequence[Arrived]) -> None:
        """Give these records of the last poll again with the next one; none of them was processed."""
        for one in unread:
            assert one.records is not None, "only records are put back"
            self._move(str(one.ssp), int(one.records.column(3)[0].as_py()))
        self._left = list(unread)

    def _wanted(self) -> Mapping[SystemStreamPartition, Span]:
        """What is asked for; the same as the last time while nothing has come."""
        waits = self._order.waits(self._positions)
        if self._asked is None or waits != self._waited:
            self._asked, self._waited = self._spans(waits), waits
        return self._asked

    def _spans(self, waits: frozenset[str]) -> dict[SystemStreamPartition, Span]:
        ends = self._ends
        return {
            ssp: Span(self._positions[text], None if ends is None else ends[text])
            for text, ssp in self._ssps.items()
            if text not in waits and (ends is None or self._positions[text] < ends[text])
        }

    def close(self) -> None:
        """Release connections."""
        self._inputs.close()


class PassedOffsets:
    """Offsets passed without a record, as marks of transactions, until checkpoints name them: by the numbers of SSPs.

    Used by one thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_offsets: dict[int, int] = {}
        self._since_s = 0.0

    def __bool__(self) -> bool:
        """Whether checkpoints do not name them all."""
        return bool(self._next_offsets)

    def add(self, index: int, next_offset: int) -> None:
        """All before `next_offset` was passed."""
        if not self._next_offsets:
            self._since_s = self._clock.monotonic_s()
        self._next_offsets[index] = next_offset

    def discard(self, index: int) -> None:
        """A record has come after it."""
        self._next_offsets.pop(index, None)

    def clear(self) -> None:
        """Nothing was passed."""
        self._next_offsets.clear()

    def take_due(
        self, readers_of: Callable[[int], Sequence[int]], at_work: Collection[int], *, is_at_the_end: bool
    ) -> Iterator[tuple[int, int]]:
        """(SSP, next offset) of those that the next checkpoints are to name: with those of all tasks that read the
        SSP when they are made anyway, or after a while by themselves. They are not held any more."""
        if not self._next_offsets:
            return
        is_due = self._clock.monotonic_s() >= self._since_s + _PASSED_S or is_at_the_end
        for index, next_offset in list(self._next_offsets.items()):
            if is_due or all(task in at_work for task in readers_of(index)):
                del self._next_offsets[index]
                yield index, next_offset
