"""Applying startpoints when a container starts, before it reads anything.

What is pending for a task and not applied yet becomes its new checkpoint: the offsets that the startpoints mean, the
note which startpoints they were, and, when the operator wants the stores back or empty, the changelog records that
do it. All of it is one transaction under the container's fence, so a container that dies leaves the startpoint
either wholly unapplied, and the next one applies it, or wholly applied, and no container does so again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from grete.checkpoint.applied_startpoints import Applied, applied_entry, read_applied
from grete.checkpoint.startpoint_offsets import resolve
from grete.checkpoint.task_commit import Commits, TaskCommit, commit_entries
from grete.container.assignment import AssignedTask, Assignment
from grete.errors import JobError
from grete.failpoints import failpoint
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StateChoice, StateRequest
from grete.systems.admin import PartitionOffsets
from grete.systems.base import System
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.tasks.commit.base import CommitTarget
from grete.tasks.stores.rewind import Changelog

_log = logging.getLogger("grete.container")


def applied_startpoints(system: System, checkpoint_log: str) -> dict[TaskName, Applied]:
    """The startpoints that each task has applied."""
    return read_applied(system.checkpoint_log(checkpoint_log).read())


class Rewound(NamedTuple):
    """What is committed after startpoints were applied, and when the oldest of those that moved a task was made."""

    commits: dict[TaskName, TaskCommit]
    asked_ms: int | None = None


def apply_startpoints(
    assignment: Assignment,
    system: System,
    target: CommitTarget,
    commits: Commits,
    systems: Mapping[str, System] | None = None,
) -> Rewound:
    """Apply what is pending and was not applied before. Durable on return.

    `systems` are those of the inputs, where they are several.

    A task's checkpoint that moved has no lineage: it belongs to no batch, and the data plane starts a new one.

    Raises:
        Fenced: another incarnation has taken over; nothing was written.
        OffsetOutOfRange: a specific offset is not in the stream; that task's startpoint stays pending.
        JobError: the stores cannot be restored; says why and the way out. That task's startpoint stays pending.
    """
    if not any(task.pending.startpoints for task in assignment.tasks):
        return Rewound(dict(commits))
    rewind = _Rewind(assignment, system, target, systems or {})
    after = dict(commits)
    steps = [rewind.step(task, after.get(task.name)) for task in assignment.tasks]
    todo = [step for step in steps if step is not None]
    for group in [[step for step in todo if not step.request], *([step] for step in todo if step.request)]:
        if group:
            after.update(rewind.commit(group))
    return Rewound(after, min((step.asked_ms for step in todo if step.moves), default=None))


@dataclass(frozen=True, slots=True)
class _Step:
    """One task's way to its startpoints, the oldest of which is of `asked_ms`. Without `request` its stores stay as
    they are.
    """

    task: AssignedTask
    before: TaskCommit | None
    offsets: Mapping[SystemStreamPartition, str]
    applied: Applied
    asked_ms: int
    request: StateRequest | None

    @property
    def moves(self) -> bool:
        """Whether anything but the note is to be written."""
        return (
            self.before is None
            or self.offsets != dict(self.before.offsets)
            or self.applied.state is not StateChoice.KEEP
        )


class _Rewind:
    def __init__(
        self, assignment: Assignment, system: System, target: CommitTarget, systems: Mapping[str, System]
    ) -> None:
        self._assignment = assignment
        self._system = system
        self._target = target
        self._applied = applied_startpoints(system, target.checkpoint_log)
        self._systems = systems
        self._known: dict[SystemStream, Mapping[int, PartitionOffsets]] = {}
        self._is_pipeline = assignment.settings.job.is_pipeline

    def step(self, task: AssignedTask, before: TaskCommit | None) -> _Step | None:
        """The step that a task needs; None when there is nothing to apply."""
        done = self._applied.get(task.name, Applied({}))
        todo = {
            ssp: startpoint
            for ssp, startpoint in task.pending.startpoints.items()
            if ssp in task.ssps and done.created_ms.get(ssp) != startpoint.created_ms
        }
        if not todo:
            return None
        offsets = {} if before is None else dict(before.offsets)
        for ssp, startpoint in todo.items():
            offsets[ssp] = str(int(self._resolve(ssp, startpoint)) - 1)
        times = {ssp: startpoint.created_ms for ssp, startpoint in todo.items()}
        request = self._request(task, set(times.values()))
        choice = StateChoice.KEEP if request is None else request.choice
        applied = Applied({**done.created_ms, **times}, choice)
        return _Step(task, before, offsets, applied, min(times.values()), request)

    def _resolve(self, ssp: SystemStreamPartition, startpoint: Startpoint) -> str:
        stream, system = ssp.system_stream, self._systems.get(ssp.system, self._system)
        if stream not in self._known:
            self._known[stream] = system.offsets(ssp.stream)
        found = resolve(startpoint, ssp, self._known[stream][ssp.partition], system)
        _log.info("the startpoint %s of %s means offset %s", startpoint, ssp, found)
        return found

    def _request(self, task: AssignedTask, created_ms: set[int]) -> StateRequest | None:
        """The request for the stores, if one came together with one of these startpoints."""
        request = task.pending.state
        if request is None or request.created_ms not in created_ms or request.choice is StateChoice.KEEP:
            return None
        if self._is_pipeline and request.choice is StateChoice.RESTORE:
            raise JobError(
                f"task {task.name!r}: the state of a DataFrame pipeline is Spark's and cannot be restored; "
                f"take the startpoint back with `grete startpoint delete --all`, or rewind with --state discard"
            )
        return request

    def commit(self, steps: list[_Step]) -> dict[TaskName, TaskCommit]:
        """Write the steps in one transaction; returns the new commits of tasks whose checkpoints moved."""
        commits: dict[TaskName, TaskCommit] = {}
        segments: list[SegmentWrite] = []
        for step in steps:
            if step.moves:
                positions, records = self._stores(step)
                commits[step.task.name] = TaskCommit(step.offsets, store_positions=positions)
                segments += records
        grouper = self._target.grouper
        notes = [applied_entry(step.task.name, step.applied, grouper=grouper) for step in steps]
        group = CommitGroup(
            fences=self._target.fences,
            segments=segments,
            checkpoint_log=self._target.checkpoint_log,
            checkpoint_entries=[*commit_entries(commits, grouper=grouper), *notes],
        )
        failpoint("startpoint.resolved")
        self._target.store.commit(group)
        failpoint("startpoint.applied")
        self._target.copy(commits)
        for step in steps:
            _log.info("task %s starts after %s", step.task.name, dict(step.offsets))
        return commits

    def _stores(self, step: _Step) -> tuple[dict[str, int], list[SegmentWrite]]:
        """(where each changelog ends afterwards, the records to append)."""
        settings = self._assignment.settings
        positions: dict[str, int] = {}
        segments: list[SegmentWrite] = []
        for name in [] if self._is_pipeline else settings.store_names:
            stream = settings.store(name).changelog_stream(self._assignment.job)
            place = (self._system, stream, step.task.changelog_partition)
            changelog = Changelog(*place, is_expiring=settings.store(name).is_expiring)
            changes = self._changes(step, name, changelog)
            positions[name] = changelog.end + len(changes)
            segments += changelog.segments(changes, self._target.now_ms())
        return positions, segments

    def _changes(self, step: _Step, store: str, changelog: Changelog) -> dict[bytes, bytes | None]:
        if step.request is None:
            return {}
        if step.request.choice is StateChoice.DISCARD:
            return changelog.back_to_nothing()
        try:
            return changelog.back_to(step.request.positions.get(store, 0))
        except JobError as error:
            raise JobError(
                f"task {step.task.name!r}: store {store!r} cannot be restored: {error}; take the startpoint back "
                f"with `grete startpoint delete --all`, or rewind with --state keep or --state discard"
            ) from error
