"""`grete checkpoint overwrite`: Samza's checkpoint tool, writing.

Other than Samza's, it merges: an SSP that is not named keeps its offset, unless `replace` says that what is named is
the whole checkpoint of its task (S2-98). It refuses what a start would refuse, and a job that runs (S2-100).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from grete.checkpoint.offset_manager import check_in_range
from grete.checkpoint.task_commit import TaskCommit
from grete.checkpoint.text import Checkpoints
from grete.errors import ConfigError, JobError
from grete.metadata.history import History
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind
from grete.operations.job_handle import JobHandle, no_such_task, not_read
from grete.operations.orphans import standing_still
from grete.operations.startpoints import LIVE, Where, write_startpoints
from grete.systems.base import System


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A last processed offset of a task, now and after; None is none."""

    task: TaskName
    ssp: SystemStreamPartition
    current: str | None
    new: str | None


def compare(current: Checkpoints, new: Checkpoints, *, replace: bool) -> list[OffsetChange]:
    """The changes that writing `new` would make; with `replace`, what it does not name of its tasks goes."""
    changes = []
    for task, offsets in sorted(new.items()):
        before = current.get(task, {})
        after = dict(offsets) if replace else {**before, **offsets}
        for ssp in sorted({*before, *after}):
            if before.get(ssp) != after.get(ssp):
                changes.append(OffsetChange(task, ssp, before.get(ssp), after.get(ssp)))
    return changes


def plan_overwrite(handle: JobHandle, new: Checkpoints, *, replace: bool) -> list[OffsetChange]:
    """The changes that it would make. Writes nothing.

    Raises:
        ConfigError: an offset that is no number.
        JobError: a task that the job has not, or an SSP that the task does not read.
        OffsetOutOfRange: the job could not start there; names the range that is missing.
    """
    with ExitStack() as stack:
        _check(handle, new, stack)
    current = {task: commit.offsets for task, commit in handle.checkpoints.read().items()}
    return compare(current, new, replace=replace)


def _check(handle: JobHandle, new: Checkpoints, stack: ExitStack) -> None:
    inputs = handle.task_inputs()
    systems: dict[str, System] = {}
    for task, offsets in sorted(new.items()):
        if task not in inputs:
            raise no_such_task(handle.job, task, inputs)
        for ssp, offset in sorted(offsets.items()):
            if ssp not in inputs[task]:
                raise not_read(task, ssp, inputs[task])
            if ssp.system not in systems:
                systems[ssp.system] = stack.enter_context(handle.system(ssp.system))
            _check_offset(ssp, offset, systems[ssp.system])


def _check_offset(ssp: SystemStreamPartition, offset: str, system: System) -> None:
    try:
        next_offset = str(int(offset) + 1)
    except ValueError:
        raise ConfigError(f"{ssp}: {offset!r} is no offset of its system; write a number") from None
    what = f"{ssp} was to be processed up to offset {offset}"
    check_in_range(
        next_offset, system.offsets(ssp.stream)[ssp.partition], system, what, "Nothing was written"
    )


def overwrite(handle: JobHandle, new: Checkpoints, *, replace: bool, live: bool, reason: str) -> None:
    """Write the checkpoints, in one append; of a running job (`live`), startpoints that lead to them.

    Durable on return.

    Raises:
        HeldByOther: the job runs and `live` is not set; nothing was written.
        ConfigError: `replace` together with `live`: a startpoint can move an offset, not remove it.
        JobError: a container still runs without a coordinator.
    """
    changes = plan_overwrite(handle, new, replace=replace)
    details = {"tasks": ", ".join(sorted(new)), "changes": str(len(changes)), "reason": reason}
    if live and replace:
        raise ConfigError("--live and --replace exclude each other: stop the job to remove offsets")
    if live:
        startpoints: dict[Where, Startpoint] = {
            (change.ssp, change.task): Startpoint(
                StartpointKind.SPECIFIC, 0, offset=str(int(change.new or -1) + 1)
            )
            for change in changes
        }
        write_startpoints(
            handle,
            startpoints,
            {},
            live=True,
            event="checkpoint-overwrite",
            source="checkpoint-tool",
            **details,
        )
        return
    with standing_still(handle, way_out=LIVE):
        _write(handle, new, replace=replace)
        History(handle.stream).append("checkpoint-overwrite", source="checkpoint-tool", **details)


def _write(handle: JobHandle, new: Checkpoints, *, replace: bool) -> None:
    current: Mapping[TaskName, TaskCommit] = handle.checkpoints.read()
    commits = {}
    for task, offsets in new.items():
        before = current.get(task, TaskCommit({}))
        kept = {} if replace else before.offsets
        commits[task] = TaskCommit({**kept, **offsets}, changelog_marks=before.changelog_marks)
    if handle.checkpoints.has_store and any(commit.changelog_marks for commit in commits.values()):
        raise JobError(
            "Samza's checkpoints in task.checkpoint.factory's store say where the job's stores go back to: run the "
            "job once, which takes them over, and stop it; then its checkpoints can be written"
        )
    handle.checkpoints.write(commits)
