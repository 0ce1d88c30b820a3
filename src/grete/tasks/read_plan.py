"""Decides what a container reads next: exact stream partitions, exact offsets, bounded batches. No Spark.

A task's ranges are read one SSP after the other in one place, so that no shuffle is needed however many streams a
task reads. For StreamTasks Spark gets no rows at all: the driver hands the ranges out (`grete.tasks.share`), and the
workers read their records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from grete.clock import Clock
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import PartitionOffsets
from grete.systems.admin import Range as Span
from grete.systems.inputs import Absent, share_out
from grete.tasks.ranges import SourceOffsets, TaskGroup, task_groups
from grete.tasks.read_order import ReadOrder, ends_of

PARTITIONS_AT_MOST = 64
"""Slots of a batch, or Spark's partitions of one, where nothing else says how many there can be."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The inputs of a container: of `system`, of whose `config` there are its own keys, references unresolved.

    `tasks` lists, per task index, indexes into `ssps`; None is a task an SSP, whose slot may be any.

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
    partitions_at_most: int = PARTITIONS_AT_MOST
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
        self._order = ReadOrder(spec.ssps, spec.bootstrap, spec.later, lambda name: system)
        self._absent = Absent()

    def initial(self) -> SourceOffsets:
        """Where reading starts."""
        return SourceOffsets(dict(self._spec.starting_offsets), self._tick())

    def end(self) -> SourceOffsets:
        """Where the streams end now, without the partitions that no broker answers for."""
        held = self._held()
        self._absent.note(
            ssp for ssp, text in zip(self._ssps, self._spec.ssps, strict=True) if held[text] is None
        )
        return SourceOffsets(ends_of(held), self._tick())

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
        waits = self._order.waits(before)
        available = {ssp: 0 if ssp in waits else count for ssp, count in available.items()}
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
        return ends_of(self._held(all_of_it=True))


def _sizes(system: StreamEnds, start: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    """About how many bytes each SSP has between next offsets; without those that have no records there."""
    ranges = {
        SystemStreamPartition.parse(ssp): (start.get(ssp, 0), end)
        for ssp, end in ends.items()
        if start.get(ssp, 0) < end
    }
    return {str(ssp): size for ssp, size in system.sizes(ranges).items()}
