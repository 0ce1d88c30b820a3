"""The input of a batch: where it ends, and which offsets of which stream partition each task reads.

Ranges are all that travels to the workers. Reading a record in the source's own worker would take it through the JVM
twice, as an Arrow column, a row and an Arrow column again: measured, three times what its task costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """Where a batch ends: the next offset to read by the text of each SSP.

    `tick` advances every `task.window.ms`, so that a batch runs for StreamTask.window even without messages.
    """

    next_offsets: Mapping[str, int]
    tick: int = 0

    def to_document(self) -> dict[str, Any]:
        """As Spark writes it into its log: `{"offsets": {"system.stream.partition": next offset}, "tick": n}`."""
        return {"offsets": dict(self.next_offsets), "tick": self.tick}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SourceOffsets:
        """Back from the document.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        offsets = {str(ssp): int(offset) for ssp, offset in document["offsets"].items()}
        return cls(offsets, int(document.get("tick", 0)))


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets start <= offset < end of one SSP, by its index."""

    ssp: int
    start: int
    end: int


TaskGroup = list[tuple[int, list[Range]]]
"""Tasks of one slot by their index, each with what it reads."""


def task_groups(
    ssps: Sequence[str],
    tasks: Sequence[Sequence[int]] | None,
    slots_at_most: int,
    start: SourceOffsets,
    end: SourceOffsets,
) -> dict[int, TaskGroup]:
    """The tasks of a batch with their ranges, by slot. A slot whose tasks have nothing to do is left out.

    `tasks` lists indexes into `ssps` for each task. A task's slot is the same in every batch. A broadcast SSP is
    planned once for every task that reads it. None is a task for each SSP, in any slot: all get as much to read.
    """
    ranges = [Range(index, start.next_offsets[ssp], end.next_offsets[ssp]) for index, ssp in enumerate(ssps)]
    if tasks is None:
        return _spread(ranges, slots_at_most)
    slots = min(len(tasks), slots_at_most)
    groups: dict[int, TaskGroup] = {}
    for task, indexes in enumerate(tasks):
        own = [ranges[i] for i in indexes if ranges[i].start < ranges[i].end]
        if own or end.tick != start.tick:
            groups.setdefault(task * slots // len(tasks), []).append((task, own))
    return groups


def _spread(ranges: Sequence[Range], slots_at_most: int) -> dict[int, TaskGroup]:
    """The longest goes first, each to the slot that has the least: no slot waits long for another."""
    loads = [0] * slots_at_most
    groups: dict[int, TaskGroup] = {}
    for one in sorted(ranges, key=lambda one: one.start - one.end):
        if one.start < one.end:
            slot = loads.index(min(loads))
            loads[slot] += one.end - one.start
            groups.setdefault(slot, []).append((one.ssp, [one]))
    return {slot: sorted(group, key=lambda task: task[0]) for slot, group in groups.items()}
