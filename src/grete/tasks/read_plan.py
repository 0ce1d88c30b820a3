"""Decides what a container reads next: exact stream partitions, exact offsets, bounded batches. No Spark.

A task's ranges are read one SSP after the other in one place, so that no shuffle is needed however many streams a
task reads. For StreamTasks Spark gets no rows at all: the driver hands the ranges out (`grete.tasks.share`), and the
workers read their records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from grete.clock import Clock
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import PartitionOffsets
from grete.systems.admin import Range as Span
from grete.tasks.ranges import SourceOffsets, TaskGroup, task_groups

_log = logging.getLogger("grete.container")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The inputs of a container: of `system`, of whose `config` there are its own keys, references unresolved.

    `tasks` lists, per task index, indexes into `ssps`; None plans one partition an SSP.

    A batch is `max_records` at most, and about `max_bytes` where the system can tell; 0 is no limit.
    `partitions_at_most`: with more tasks than this, several whole tasks share a slot one after another. A task's slot
    is the same in every batch.
    `bootstrap` streams are read to the end they had at the start before any other stream moves. `later` names, for an
    SSP, the lower partitions of its stream in the same task: nothing of it is read before these have come to the end
    they had when reading began, as long as it stands at its own beginning. So keys keep their order on systems that
    do not remember where the keys of an added partition were before.
    """

    system: str
    config: Mapping[str, str]
    home: str
    ssps: tuple[str, ...]
    starting_offsets: Mapping[str, int]
    tasks: tuple[tuple[int, ...], ...] | None
    max_records: int
    max_bytes: int = 0
    tick_ms: int = 0
    partitions_at_most: int = 64
    bootstrap: tuple[str, ...] = ()
    later: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def groups(self, start: SourceOffsets, end: SourceOffsets) -> dict[int, TaskGroup]:
        """The tasks and ranges of each slot in a batch, see `task_groups`."""
        return task_groups(self.ssps, self.tasks, self.partitions_at_most, start, end)

    def to_json(self) -> str:
        """As one data source option."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SourceOptions:
        """Back from the option."""
        document = json.loads(text)
        tasks = document.pop("tasks")
        return cls(
            **document | {"ssps": tuple(document["ssps"]), "bootstrap": tuple(document["bootstrap"])},
            tasks=None if tasks is None else tuple(tuple(task) for task in tasks),
        )


class StreamEnds(Protocol):
    """The questions of a plan to its system."""

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """See SystemAdmin."""

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        """See SystemAdmin."""

    def sizes(self, ranges: Mapping[SystemStreamPartition, Span]) -> Mapping[SystemStreamPartition, int]:
        """See SystemAdmin."""

    def end_within(self, ssp: SystemStreamPartition, offsets: Span, size: int) -> int:
        """See SystemAdmin."""


class ReadPlan:
    """Decides, batch by batch, up to where to read.

    Of partitions that no broker answers for nothing is read, and the others go on; save where an order between them
    has to be kept, or all that is there is to be read.
    """

    def __init__(self, spec: SourceOptions, system: StreamEnds, clock: Clock) -> None:
        self._spec = spec
        self._system = system
        self._clock = clock
        self._ssps = [SystemStreamPartition.parse(text) for text in spec.ssps]
        self._target: SourceOffsets | None = None
        self._bootstrap_target: dict[str, int] | None = None
        self._origins: dict[str, list[tuple[str, int]]] | None = None
        self._unreachable: frozenset[str] = frozenset()

    def initial(self) -> SourceOffsets:
        """Where reading starts."""
        return SourceOffsets(dict(self._spec.starting_offsets), self._tick())

    def end(self) -> SourceOffsets:
        """Where the streams end now, without the partitions that no broker answers for."""
        held = self._held()
        self._tell({ssp for ssp, offsets in held.items() if offsets is None})
        return SourceOffsets(_ends(held), self._tick())

    def stop_at_the_end(self) -> None:
        """From now on nothing is planned that is not there yet.

        Raises:
            StreamUnreachable: no broker answers for a partition, so its end is not known.
        """
        self._target = SourceOffsets(self._all_ends(), self._tick())

    def next(self, start: SourceOffsets, *, rows: int | None) -> SourceOffsets:
        """Up to where the next batch reads: at most `rows` records, None for all there are, and about `max_bytes`.

        Raises:
            StreamUnreachable: no broker answers, or not for a partition that others have to wait for.
        """
        target, before = self._target or self.end(), start.next_offsets
        available = {ssp: max(0, target.next_offsets.get(ssp, 0) - before[ssp]) for ssp in self._spec.ssps}
        available = self._bootstrap_first(before, available)
        available = self._origins_first(before, available)
        taken = share_out(available, sum(available.values()) if rows is None else rows)
        ends = {ssp: before[ssp] + taken[ssp] for ssp in self._spec.ssps}
        return SourceOffsets(self._within_bytes(before, ends), max(start.tick, target.tick))

    def _within_bytes(self, start: Mapping[str, int], ends: dict[str, int]) -> dict[str, int]:
        """Nearer ends, where the records up to these ones are too large together: every SSP gets an equal share."""
        if self._spec.max_bytes <= 0:
            return ends
        sizes = _sizes(self._system, start, ends)
        if sum(sizes.values()) <= self._spec.max_bytes:
            return ends
        budgets = share_out(sizes, self._spec.max_bytes)
        nearer = {
            ssp: self._system.end_within(SystemStreamPartition.parse(ssp), (start[ssp], ends[ssp]), budget)
            for ssp, budget in budgets.items()
        }
        return ends | nearer

    def _tick(self) -> int:
        return self._clock.wall_ms() // self._spec.tick_ms if self._spec.tick_ms > 0 else 0

    def _held(self, *, all_of_it: bool = False) -> dict[str, PartitionOffsets | None]:
        ask = self._system.offsets if all_of_it else self._system.reachable_offsets
        by_stream = {stream: ask(stream) for stream in {ssp.stream for ssp in self._ssps}}
        return {
            text: by_stream[ssp.stream][ssp.partition]
            for text, ssp in zip(self._spec.ssps, self._ssps, strict=True)
        }

    def _all_ends(self) -> dict[str, int]:
        return _ends(self._held(all_of_it=True))

    def _tell(self, unreachable: Iterable[str]) -> None:
        now = frozenset(unreachable)
        for ssp in sorted(now - self._unreachable):
            _log.warning("waiting for %s: no broker answers for it, do the brokers that hold it run?", ssp)
        for ssp in sorted(self._unreachable - now):
            _log.info("%s can be read again", ssp)
        self._unreachable = now

    def _bootstrap_first(self, start: Mapping[str, int], available: dict[str, int]) -> dict[str, int]:
        """Only bootstrap streams, as long as one of them is behind the end it had when reading began."""
        if not self._spec.bootstrap:
            return available
        first = {
            text
            for text, ssp in zip(self._spec.ssps, self._ssps, strict=True)
            if str(ssp.system_stream) in self._spec.bootstrap
        }
        if self._bootstrap_target is None:
            ends = self._all_ends() if first & self._unreachable else None
            self._bootstrap_target = {
                ssp: start[ssp] + available[ssp] if ends is None else ends[ssp] for ssp in first
            }
        behind = {ssp for ssp, end in self._bootstrap_target.items() if start[ssp] < end}
        return (
            {ssp: count if ssp in first else 0 for ssp, count in available.items()} if behind else available
        )

    def _origins_first(self, start: Mapping[str, int], available: dict[str, int]) -> dict[str, int]:
        """Nothing of a partition that was added, until the records its keys left elsewhere before are read.

        So each key's records stay in their order when a stream grows.
        """
        if self._origins is None:
            self._origins = self._find_origins(start)
        origins = self._origins

        def must_wait(ssp: str) -> bool:
            return any(
                start.get(origin, end) < end or must_wait(origin) for origin, end in origins.get(ssp, ())
            )

        return {ssp: 0 if must_wait(ssp) else count for ssp, count in available.items()}

    def _find_origins(self, start: Mapping[str, int]) -> dict[str, list[tuple[str, int]]]:
        """Where the keys of each added partition that we read were before, and up to which offset there."""
        held = self._held(all_of_it=bool(self._spec.later))
        found: dict[str, list[tuple[str, int]]] = {}
        for text, ssp in zip(self._spec.ssps, self._ssps, strict=True):
            mine = held[text]
            if mine is None:
                continue
            if mine.origin is not None:
                before = SystemStreamPartition(ssp.system, ssp.stream, mine.origin.partition)
                found[text] = [(str(before), int(mine.origin.upcoming))]
            elif start[text] <= int(mine.upcoming if mine.oldest is None else mine.oldest):
                ends = _ends(held)
                found[text] = [(lower, ends[lower]) for lower in self._spec.later.get(text, ())]
        return found


def _sizes(system: StreamEnds, start: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    """About how many bytes each SSP has between next offsets; without those that have no records there."""
    ranges = {
        SystemStreamPartition.parse(ssp): (start.get(ssp, 0), end)
        for ssp, end in ends.items()
        if start.get(ssp, 0) < end
    }
    return {str(ssp): size for ssp, size in system.sizes(ranges).items()}


def _ends(held: Mapping[str, PartitionOffsets | None]) -> dict[str, int]:
    return {ssp: int(offsets.upcoming) for ssp, offsets in held.items() if offsets is not None}


def share_out(available: Mapping[str, int], rows: int) -> dict[str, int]:
    """Give every SSP an equal share of `rows`; what one does not need goes to the others. Deterministic."""
    taken = dict.fromkeys(available, 0)
    waiting = sorted(
        (ssp for ssp, count in available.items() if count > 0), key=lambda ssp: (available[ssp], ssp)
    )
    left = rows
    for position, ssp in enumerate(waiting):
        share = left // (len(waiting) - position)
        taken[ssp] = min(available[ssp], share)
        left -= taken[ssp]
    return taken
