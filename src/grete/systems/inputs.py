"""The input of a share as it arrives: records of several stream partitions, polled by the process that works on them.

`System.read` reads ranges whose ends are known. A share that lives long asks for what is there instead, and waits for
it where the system can wake it: asking brokers where partitions end took 2 ms of a processor each time.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from grete.clock import Clock
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import OffsetAdmin, PartitionOffsets

if TYPE_CHECKING:
    from grete.arrow import pa

_log = logging.getLogger("grete.container")
_PAUSE_S = (0.005, 0.05)
"""Between looks for input when there is none: a record waits 5 ms when others came before, 50 ms at most."""
_PAUSE_FOR_CHANGES_S = (0.002, 0.05)
"""As `_PAUSE_S`, where a look costs next to nothing unless something was written."""

_BYTES_AT_ONCE = 16 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of a partition that are wanted: from `start` to before `end`, None is whatever comes."""

    start: int
    end: int | None = None


Wanted = Mapping[SystemStreamPartition, Span]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of a partition in order, of `systems.records.SPARSE_SCHEMA`.

    The next one has `next_offset` or a later one. There may be none, where only what no reader sees has been passed.
    """

    ssp: SystemStreamPartition
    records: pa.RecordBatch | None
    next_offset: int


class Absent:
    """Says once that a partition is waited for, and once that it can be read again."""

    def __init__(self) -> None:
        self._absent: frozenset[SystemStreamPartition] = frozenset()

    def note(self, absent: Iterable[SystemStreamPartition]) -> None:
        """These are the partitions that no broker answers for now."""
        now = frozenset(absent)
        for ssp in sorted(now - self._absent):
            _log.warning("waiting for %s: no broker answers for it, do the brokers that hold it run?", ssp)
        for ssp in sorted(self._absent - now):
            _log.info("%s can be read again", ssp)
        self._absent = now


class Inputs(ABC):
    """What a share reads. Used by one thread."""

    @abstractmethod
    def poll(self, wanted: Wanted, records: int, wait_s: float) -> list[Arrived]:
        """About so many records at most, of those partitions only; waits at most so long while there are none.

        A caller goes on in each partition at the `next_offset` that it got last, or elsewhere. Partitions whose
        brokers are away are passed over.

        Raises:
            OffsetsRemoved, OffsetOutOfRange: a wanted offset is not there.
            StreamNotFound: no such partition.
            StreamUnreachable: no broker answers.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections."""


class ChangeSignal(Protocol):
    """Where a system's changes show, cheaper than in its partitions."""

    def version(self) -> object:
        """Another value after each change by others. Raises GreteError."""

    def descriptor(self) -> int | None:
        """Readable once something was written, until `version` is asked; None where nothing tells that."""

    def close(self) -> None:
        """Release it."""


class ReadableSystem(OffsetAdmin):
    """What is asked of a system: where its partitions end, and what they hold."""

    @abstractmethod
    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(offset of the first row, columns key, value, timestamp_ms) for start <= offset < end, in order.

        A column `offset`, where there is one, is the fourth; without it offsets are consecutive. A column `headers`,
        where some record has some, is the last, see `systems.records`. `end` is at most the upcoming offset, which it
        is when it is left out. One range after the other: an iterator that was left ends with the next read.

        Raises:
            OffsetOutOfRange: `start` is below the oldest offset or above the upcoming one.
        """


class LookedFor(Inputs):
    """Asks a system where partitions end, and reads up to there."""

    def __init__(
        self,
        system: ReadableSystem,
        clock: Clock,
        ends: OffsetAdmin | None = None,
        *,
        changes: ChangeSignal | None = None,
    ) -> None:
        """`ends` is where partitions end, when that is not what the system says.

        With `changes`, which are closed with this, partitions are looked at when something was written at all.
        """
        self._system = system
        self._ends = system if ends is None else ends
        self._clock = clock
        self._changes = changes
        self._found_none_at: tuple[object, Wanted] | None = None
        self._pauses_s = _PAUSE_S if changes is None else _PAUSE_FOR_CHANGES_S
        self._pause_s = self._pauses_s[0]
        self._look_at_s = -math.inf
        """Callers who wait for a moment only come more often than it is worth looking."""
        self._turn = 0
        self._absent = Absent()

    def poll(self, wanted: Wanted, records: int, wait_s: float) -> list[Arrived]:
        """See Inputs."""
        until_s = self._clock.monotonic_s() + wait_s
        while True:
            now_s = self._clock.monotonic_s()
            if wait_s <= 0 or now_s >= self._look_at_s:
                if found := self._look_for_changes(wanted, records):
                    self._pause_s = self._pauses_s[0]
                    return found
                self._look_at_s = now_s + self._pause_s
                self._pause_s = min(1.5 * self._pause_s, self._pauses_s[1])
            if now_s >= until_s:
                return []
            self._await_change(now_s, until_s)

    def _await_change(self, now_s: float, until_s: float) -> None:
        """Until the next look is due, or the caller's time is over."""
        told_by = None if self._changes is None else self._changes.descriptor()
        if told_by is None:
            self._clock.wait(threading.Event(), min(until_s, self._look_at_s) - now_s)
            return
        self._clock.wait_readable(told_by, until_s - now_s)
        self._look_at_s = now_s + self._pauses_s[0]  # one look for all that come at once
        left_s = min(until_s, self._look_at_s) - self._clock.monotonic_s()
        self._clock.wait(threading.Event(), max(0.0, left_s))

    def _look_for_changes(self, wanted: Wanted, records: int) -> list[Arrived]:
        if self._changes is None:
            return self._look(wanted, records)
        now = self._changes.version(), wanted  # before the look: what comes meanwhile is another version
        if self._found_none_at == now:
            return []
        found = self._look(wanted, records)
        self._found_none_at = None if found else now
        return found

    def _look(self, wanted: Wanted, records: int) -> list[Arrived]:
        spans = self._available(wanted)
        if not spans:
            return []
        taken = share_out({ssp: end - start for ssp, start, end in spans}, records, self._turn)
        self._turn += 1
        at = self._turn % len(spans)  # the first goes round: bytes may end a turn early
        found, size = list[Arrived](), 0
        for ssp, start, _ in [*spans[at:], *spans[:at]]:
            if taken[ssp] and size < _BYTES_AT_ONCE:
                one = self._read(ssp, start, start + taken[ssp])
                size += 0 if one.records is None else one.records.nbytes
                found.append(one)
        return found

    def _available(self, wanted: Wanted) -> list[tuple[SystemStreamPartition, int, int]]:
        held: dict[str, Mapping[int, PartitionOffsets | None]] = {}
        found, absent = [], []
        for ssp, span in wanted.items():
            if ssp.stream not in held:
                held[ssp.stream] = self._ends.reachable_offsets(ssp.stream)
            offsets = held[ssp.stream][ssp.partition]
            if offsets is None:
                absent.append(ssp)
                continue
            end = int(offsets.upcoming)
            end = end if span.end is None else min(end, span.end)
            if span.start < end:
                found.append((ssp, span.start, end))
        self._absent.note(absent)
        return found

    def _read(self, ssp: SystemStreamPartition, start: int, end: int) -> Arrived:
        """One piece of a partition: what systems keep apart, as each append of one, costs a call of the task less."""
        from grete.systems.records import join, sparse

        pieces, size = [], 0
        for first, batch in self._system.read(ssp.stream, ssp.partition, start, end):
            pieces.append(sparse(first, batch))
            size += batch.nbytes
            if size >= _BYTES_AT_ONCE:
                break
        pieces = [piece for piece in pieces if piece.num_rows]
        if not pieces:
            return Arrived(ssp, None, end)
        rows = join(pieces)
        after = rows.column(3)[rows.num_rows - 1].as_py() + 1
        return Arrived(ssp, rows, after if size >= _BYTES_AT_ONCE else end)

    def close(self) -> None:
        """See Inputs: the system is the caller's."""
        if self._changes is not None:
            self._changes.close()


K = TypeVar("K", bound=Any)


def share_out(available: Mapping[K, int], records: int, turn: int | None = None) -> dict[K, int]:
    """Give each an equal share of `records`; what one does not need goes to the others. Deterministic.

    With a `turn`, a number that grows, and fewer records than takers, one each goes to those that are next in turn.
    """
    taken = dict.fromkeys(available, 0)
    waiting = sorted(
        (one for one, count in available.items() if count > 0), key=lambda one: (available[one], one)
    )
    if turn is not None and records < len(waiting):
        in_turn = sorted(waiting)
        return taken | {in_turn[(turn + place) % len(in_turn)]: 1 for place in range(records)}
    left = records
    for position, one in enumerate(waiting):
        taken[one] = min(available[one], left // (len(waiting) - position))
        left -= taken[one]
    return taken
