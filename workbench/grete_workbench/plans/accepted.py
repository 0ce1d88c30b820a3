"""The differences that are meant, each a predicate with a name and a reason. What none of them knows is a bug.

A predicate does not go by what the difference looks like alone: where Samza refuses and grete goes on, the plan has
to be `sound`; where a rule of grete's is wider, the story without what it is wider by has to give no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from grete.config.settings import Settings
from grete_workbench.plans.compare import Answer, Difference
from grete_workbench.plans.sound import (
    is_sound,
    last_plan,
    partition_counts,
    readers_of,
    reads_everything,
    reads_of,
    shared_before,
)
from grete_workbench.plans.stories import IN_MEMORY, ON_DISK, Story


@dataclass(frozen=True, slots=True)
class Case:
    """A difference, and what it was found in. `again` plans a changed story with both, and says how they differ."""

    story: Story
    difference: Difference
    samza: Sequence[Answer]
    ours: Sequence[Answer]
    again: Callable[[Story], Case | None]

    @property
    def config(self) -> dict[str, str]:
        """Of the start at which they part."""
        return dict(self.story.starts[self.difference.at].config)

    @property
    def refused(self) -> str:
        """Why Samza does not plan, when only Samza does not; else empty."""
        at = self.difference.at
        return "" if self.ours[at].refused is not None else self.samza[at].refused or ""

    @property
    def both_plan(self) -> bool:
        """Whether there are two plans, and they are not the same one."""
        at = self.difference.at
        return self.samza[at].refused is None is self.ours[at].refused and not self.difference.in_bytes

    @property
    def is_sound(self) -> bool:
        """Whether our plan is right by itself."""
        return is_sound(self.story, self.difference.at, self.ours)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A class of differences. `applies` says whether one belongs to it."""

    name: str
    reason: str
    applies: Callable[[Case], bool]


def reason_of(case: Case) -> Accepted | None:
    """The class of a difference; None when it is unexplained."""
    return next((each for each in ACCEPTED if each.applies(case)), None)


def _in_memory(case: Case) -> bool:
    factories = {key: value for key, value in case.config.items() if key.startswith("stores.")}
    if not factories or set(factories.values()) != {IN_MEMORY}:
        return False
    starts = tuple(
        replace(s, config={k: v.replace(IN_MEMORY, ON_DISK) for k, v in s.config.items()})
        for s in case.story.starts
    )
    on_disk = case.again(replace(case.story, starts=starts))
    return on_disk is None or reason_of(on_disk) is not None


def _no_task(case: Case) -> bool:
    start, answer = case.story.starts[case.difference.at], case.samza[case.difference.at]
    settings = Settings.of(start.config)
    shared = {str(ssp) for ssp in settings.task.broadcast_inputs}
    counts = {stream: start.streams[str(stream)] for stream in settings.task.inputs}
    every = {f"{stream}.{number}" for stream, count in counts.items() for number in range(count)}
    nothing_left = "is a broadcast one" in (case.ours[case.difference.at].refused or "") and every <= shared
    return nothing_left and answer.refused is None and '"tasks":{}' in answer.model


_COUNTS = re.compile(r".*New partition count: (\d+) should be a multiple of previous partition count: (\d+)")


_LOST = re.compile(r"(\S+) had (\d+) partitions and has (\d+): it ")


def _counts_shared(case: Case) -> bool:
    at, found = case.difference.at, _COUNTS.match(case.refused)
    if case.ours[at].refused is not None:
        return _miscounted(case)
    if case.both_plan:
        return (
            case.is_sound and bool(shared_before(at, case.ours)) and not is_sound(case.story, at, case.samza)
        )
    if found is None:
        return False
    before, now = partition_counts(case.story, at, case.ours)
    real = {(now[str(s)], before.get(str(s))) for s in Settings.of(case.config).task.all_inputs}
    return (int(found[1]), int(found[2])) not in real and case.is_sound


def _miscounted(case: Case) -> bool:
    """Whether we refuse a count that is no multiple, and Samza's count of the same partitions is one."""
    at = case.difference.at
    lost = _LOST.match(case.ours[at].refused or "")
    if lost is None or case.samza[at].refused is not None:
        return False
    stream, had, has = lost[1], int(lost[2]), int(lost[3])
    before, now = partition_counts(case.story, at, case.ours)
    counted, counted_before = (reads_of(each, stream) for each in (case.samza[at], last_plan(at, case.samza)))
    real = (before.get(stream), now[stream]) == (had, has) and has % had != 0
    return real and counted > has and counted % counted_before == 0


def _had_several_owners(case: Case) -> bool:
    at = case.difference.at
    if not case.both_plan or not case.is_sound:
        return False
    theirs, mine = readers_of(case.samza[at]), readers_of(case.ours[at])
    differing = {ssp for ssp in mine if theirs.get(ssp) != mine[ssp]}
    return bool(differing) and differing <= shared_before(at, case.ours)


def _owner_is_gone(case: Case) -> bool:
    return "PartitionGroup.addSSP" in case.refused and case.is_sound


def _everything_again(case: Case) -> bool:
    at = case.difference.at
    if not Settings.of(case.config).job.reads_all_in_each_task or at == 0:
        return False
    theirs, mine = readers_of(case.samza[at]), readers_of(case.ours[at])
    return case.is_sound and reads_everything(case.ours[at]) and theirs != mine


ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        "in-memory-stores",
        "Samza does not hold a job with in-memory stores alone to its keys; in grete such a store is durable",
        _in_memory,
    ),
    Accepted(
        "no-task",
        "every partition of the inputs is a broadcast one: Samza starts a container without tasks, grete refuses",
        _no_task,
    ),
    Accepted(
        "shared-partitions-count-once",
        "Samza counts a partition once for each task that reads it: it refuses a growth that there was not, "
        "leaves keys behind in one that it does not see, or takes lost partitions for grown ones",
        _counts_shared,
    ),
    Accepted(
        "several-owners",
        "a partition that several tasks read before: Samza gives it to one of them, grete to the grouper's task",
        _had_several_owners,
    ),
    Accepted(
        "owner-is-gone",
        "Samza fails when the grouper no longer makes the task that has a partition's state; grete keeps that task",
        _owner_is_gone,
    ),
    Accepted(
        "every-container-reads-everything",
        "AllSspToSingleTask with stores: Samza makes one task the owner of all partitions, so the job does not start "
        "again, or its new containers get no task",
        _everything_again,
    ),
)
