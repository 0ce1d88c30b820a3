"""`grete checkpoint rewind`: what it would do, and doing it.

A rewind is written as startpoints, for a running job and for a stopped one alike: the checkpoint stays as it is until
a container applies them in one transaction, so until then a rewind can be taken back. See `operations.startpoints`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from grete.checkpoint.commit_history import (
    KnownCommit,
    commit_that_ended_at,
    commits_after_batch,
    ended_at,
    find_lineage,
    lineage_of,
)
from grete.checkpoint.offset_manager import default_start
from grete.checkpoint.rewind_target import BatchTarget, RewindTarget
from grete.checkpoint.startpoint_offsets import resolve
from grete.checkpoint.task_commit import TaskCommit
from grete.config.choices import LineageState
from grete.errors import JobError
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.operations.foreign_sources import kept_in_spark
from grete.operations.job_handle import JobHandle, no_such_task
from grete.operations.startpoints import Where, write_startpoints
from grete.systems.admin import PartitionOffsets
from grete.systems.base import System


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """A request to rewind. Without `tasks` and `ssps` it is for the whole job."""

    target: RewindTarget
    tasks: Sequence[TaskName] = ()
    ssps: Sequence[SystemStreamPartition | SystemStream] = ()
    """Partitions of inputs, or inputs with all of theirs."""
    state: StateChoice = StateChoice.KEEP


@dataclass(frozen=True, slots=True)
class RewindRow:
    """An SSP in a task: the next offset to be read as it is now, and as it will be."""

    task: TaskName
    ssp: SystemStreamPartition
    current: int
    new: int

    @property
    def reprocessed(self) -> int:
        """How many records are processed again, at most: a compacted stream has fewer than offsets."""
        return max(0, self.current - self.new)

    @property
    def skipped(self) -> int:
        """How many records are never processed, at most."""
        return max(0, self.new - self.current)


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """The plan of a rewind. `states` names the tasks whose stores do not stay as they are.

    `unread` are inputs that a task had not read by the batch it goes back to: they are read from their first record.
    """

    rows: Sequence[RewindRow]
    startpoints: Mapping[Where, Startpoint]
    states: Mapping[TaskName, StateRequest] = field(default_factory=dict)
    unread: Sequence[SystemStreamPartition] = ()


def plan_rewind(handle: JobHandle, request: RewindRequest) -> RewindPlan:
    """Find out what the rewind would do. Writes nothing.

    Raises:
        JobError: no such task or SSP, a batch that is not known any more, or state that cannot be kept or restored.
        OffsetOutOfRange: the stream does not hold the offset; names the range that is missing.
    """
    with ExitStack() as stack:
        return _Planner(handle, request, stack).plan()


def execute_rewind(handle: JobHandle, plan: RewindPlan, *, live: bool, to: str, reason: str) -> None:
    """Do it. Durable on return; takes effect at the next start, or the next batch boundary of a running job.

    Raises:
        HeldByOther: the job runs and `live` is not set; nothing was written.
    """
    tasks = sorted({row.task for row in plan.rows})
    write_startpoints(
        handle,
        plan.startpoints,
        {task: plan.states.get(task) for task in tasks},
        live=live,
        event="rewind",
        to=to,
        state=next((request.choice.value for request in plan.states.values()), StateChoice.KEEP.value),
        tasks=", ".join(tasks[:20]) + (f" and {len(tasks) - 20} more" if len(tasks) > 20 else ""),
        reprocessed=str(sum(row.reprocessed for row in plan.rows)),
        skipped=str(sum(row.skipped for row in plan.rows)),
        reason=reason,
    )


class _Planner:
    def __init__(self, handle: JobHandle, request: RewindRequest, stack: ExitStack) -> None:
        self._handle = handle
        self._request = request
        self._stack = stack
        self._settings = handle.settings
        self._inputs = handle.task_inputs()
        self._commits = handle.checkpoints.read()
        self._systems: dict[str, System] = {}
        self._history: dict[TaskName, list[KnownCommit]] | None = None
        self._then: dict[TaskName, TaskCommit] = {}
        self._unread: set[Where] = set()

    def plan(self) -> RewindPlan:
        selected = list(self._selected())
        state = self._state_choice()
        to = self._targets(selected)
        rows = [
            RewindRow(task, ssp, self._current(task, ssp), int(self._resolved(ssp, to[ssp, task])))
            for task, ssp in selected
            if (ssp, task) in to
        ]
        unread = sorted({ssp for ssp, _ in self._unread})
        if state is StateChoice.KEEP:
            return RewindPlan(rows, to, unread=unread)
        if state is StateChoice.DISCARD:
            discarded = {row.task: StateRequest(state, 0) for row in rows}
            return RewindPlan(rows, to, discarded, unread)
        exact: dict[Where, Startpoint] = {
            (row.ssp, row.task): Startpoint(StartpointKind.SPECIFIC, 0, offset=str(row.new)) for row in rows
        }
        restored = {task: self._restored(task, rows) for task in {row.task for row in rows}}
        return RewindPlan(rows, exact, restored, unread)

    # --- scope ---

    def _selected(self) -> Iterator[tuple[TaskName, SystemStreamPartition]]:
        if not self._inputs:
            raise JobError(
                f"job {self._handle.job.shown} has no job model yet: run it once, or set samza.offset.default"
            )
        for task in self._request.tasks:
            if task not in self._inputs:
                raise no_such_task(self._handle.job, task, self._inputs)
        tasks = self._request.tasks or sorted(self._inputs)
        wanted = self._request.ssps
        there = [(task, ssp) for task in tasks for ssp in self._inputs[task]]
        for one in wanted:
            if not any(one in (ssp, ssp.system_stream) for _, ssp in there):
                raise JobError(f"{one} is no input of {', '.join(tasks[:10])}")
        for task, ssp in there:
            if not wanted or ssp in wanted or ssp.system_stream in wanted:
                yield task, ssp

    def _state_choice(self) -> StateChoice:
        """The choice for the stores; a job without state keeps what it has not."""
        choice = self._request.state
        if self._settings.job.is_pipeline:
            return self._pipeline_choice(choice)
        return choice if self._settings.store_names else StateChoice.KEEP

    def _pipeline_choice(self, choice: StateChoice) -> StateChoice:
        if choice is StateChoice.RESTORE:
            raise JobError("the state of a DataFrame pipeline is Spark's and cannot be restored to a point")
        if choice is StateChoice.DISCARD or self._settings.job.lineage_state is LineageState.DISCARD:
            return choice
        kept = kept_in_spark(self._handle, self._commits)
        if kept != "":
            what = "its state" if kept is None else kept
            raise JobError(
                f"what Spark keeps of a DataFrame pipeline ({what}) cannot be kept when it reads from elsewhere; "
                f"say --state discard to begin without"
            )
        return choice

    # --- where from and where to ---

    def _system(self, name: str) -> System:
        if name not in self._systems:
            self._systems[name] = self._stack.enter_context(self._handle.system(name))
        return self._systems[name]

    def _offsets(self, ssp: SystemStreamPartition) -> PartitionOffsets:
        offsets = self._system(ssp.system).offsets(ssp.stream)
        if ssp.partition not in offsets:
            raise JobError(f"{ssp.system_stream} has no partition {ssp.partition}")
        return offsets[ssp.partition]

    def _current(self, task: TaskName, ssp: SystemStreamPartition) -> int:
        commit = self._commits.get(task)
        last = None if commit is None else commit.offsets.get(ssp)
        if last is not None:
            return int(last) + 1
        return int(default_start(self._offsets(ssp), self._settings.stream(ssp.system_stream)))

    def _resolved(self, ssp: SystemStreamPartition, startpoint: Startpoint) -> str:
        return resolve(startpoint, ssp, self._offsets(ssp), self._system(ssp.system), is_written=False)

    def _targets(self, selected: Sequence[tuple[TaskName, SystemStreamPartition]]) -> dict[Where, Startpoint]:
        target = self._request.target
        if isinstance(target, Startpoint):
            return {(ssp, task): target for task, ssp in selected}
        then = self._then = self._commits_after(target, sorted({task for task, _ in selected}))
        found: dict[Where, Startpoint] = {}
        for task, ssp in selected:
            if task not in then:
                continue  # it has processed nothing yet: there is nothing to go back from
            last = then[task].offsets.get(ssp)
            if last is None:
                self._unread.add((ssp, task))
                found[ssp, task] = Startpoint(StartpointKind.OLDEST, 0)
            else:
                found[ssp, task] = Startpoint(StartpointKind.SPECIFIC, 0, offset=str(int(last) + 1))
        return found

    def _commits_after(self, target: BatchTarget, tasks: Sequence[TaskName]) -> dict[TaskName, TaskCommit]:
        history = self._known()
        if target.lineage is not None:
            return commits_after_batch(history, tasks, target.batch_id, find_lineage(history, target.lineage))
        found: dict[TaskName, TaskCommit] = {}
        containers = self._handle.assignments()
        for container in sorted({containers.get(task) or "" for task in tasks}):
            together = [task for task in self._inputs if (containers.get(task) or "") == container]
            mine = [task for task in tasks if task in together]
            lineage = lineage_of(history, together, target.batch_id)
            found.update(commits_after_batch(history, mine, target.batch_id, lineage))
        return found

    def _known(self) -> dict[TaskName, list[KnownCommit]]:
        if self._history is None:
            self._history = self._handle.checkpoints.history()
        return self._history

    # --- stores ---

    def _restored(self, task: TaskName, rows: Sequence[RewindRow]) -> StateRequest:
        """The changelog positions that belong to the offsets to which the task goes back."""
        goes_to = {row.ssp: row.new for row in rows if row.task == task}
        ends = {
            ssp: goes_to.get(ssp, self._current(task, ssp))
            for ssp in self._inputs[task]
            if (ssp, task) not in self._unread
        }
        # before the first record there is no state
        before = dict.fromkeys(self._settings.store_names, 0)
        positions = self._positions_at(task, ends) if any(ends.values()) else before
        for store, position in positions.items():
            self._check_whole(task, store, position)
        return StateRequest(StateChoice.RESTORE, 0, positions)

    def _positions_at(self, task: TaskName, ends: Mapping[SystemStreamPartition, int]) -> dict[str, int]:
        commits = self._known().get(task, [])
        commit = self._then.get(task)
        if commit is None or not ended_at(commit, ends):
            commit = commit_that_ended_at(commits, ends)
        if commit is None:
            raise JobError(
                f"task {task!r}: its stores cannot be restored, since no known batch ended at "
                f"{_described(ends)}{_nearest(commits, ends)}"
            )
        missing = [store for store in self._settings.store_names if store not in commit.store_positions]
        if missing:
            raise JobError(
                f"task {task!r}: the commit that ended at {_described(ends)} does not say where the changelog of "
                f"store {missing[0]!r} stood; say --state keep or --state discard"
            )
        return {store: commit.store_positions[store] for store in self._settings.store_names}

    def _check_whole(self, task: TaskName, store: str, position: int) -> None:
        from grete.tasks.stores.rewind import Changelog

        stream = self._settings.store(store).changelog_stream(self._handle.job)
        place = (
            self._system(self._settings.task.commit_system),
            stream,
            self._handle.changelog_mapping()[task],
        )
        try:
            Changelog(*place, is_expiring=self._settings.store(store).is_expiring).check_whole(position)
        except JobError as error:
            raise JobError(
                f"task {task!r}: store {store!r} cannot be restored: {error}; say --state keep or --state discard"
            ) from error


def _described(ends: Mapping[SystemStreamPartition, int]) -> str:
    return ", ".join(f"{ssp} offset {offset}" for ssp, offset in sorted(ends.items()))


def _nearest(commits: Sequence[KnownCommit], ends: Mapping[SystemStreamPartition, int]) -> str:
    """A batch that the operator can use instead."""
    for commit in (known.commit for known in reversed(commits)):
        if commit.lineage and all(int(o) < ends.get(ssp, 0) for ssp, o in commit.offsets.items()):
            return f"; the last one before is --to batch:{commit.lineage[:8]}/{commit.batch_id}"
    return ""
