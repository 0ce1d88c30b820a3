"""Where a clone begins: at what its original has committed, or at a time. The clone is made, and does not run yet."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from grete.checkpoint.task_commit import Commits
from grete.config.settings import Settings
from grete.errors import JobError
from grete.failpoints import failpoint
from grete.metadata.assignments import TaskAssignments
from grete.metadata.history import History
from grete.metadata.job_index import register
from grete.metadata.job_state import CloneOrigin, Ends, read_origin, write_origin
from grete.model.ids import JobId
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER, SET_TASK_MODE, SET_TASK_PARTITION
from grete.model.startpoint import Startpoint
from grete.model.streams import StreamSpec
from grete.operations.checkpoint_overwrite import overwrite
from grete.operations.clone_lineages import copy_pipeline
from grete.operations.job_handle import JobHandle, open_job
from grete.operations.orphans import standing_still
from grete.operations.startpoints import Where, write_startpoints
from grete.operations.store_transfer import export_store, import_store
from grete.spark.lineage.location import OnAsking

_TASKS = (SET_TASK_CONTAINER, SET_TASK_MODE, SET_TASK_PARTITION, SET_CHANGELOG)


def begin_at_checkpoint(original: JobId, clone: Settings, on_asking: OnAsking) -> None:
    """Let the clone have the offsets of the original's last commits, and its stores, or what Spark keeps for it.

    The original may go on meanwhile. Killed in between, it can be asked for again. The entries of a task's store have
    to fit into memory.

    Raises:
        JobError: the original has committed nothing, or containers without a coordinator; or the clone has been made
            already; or a pipeline's lineage is not where this machine reads it; or what was kept at the commit is not
            there any more.
        GreteError: a system does not answer.
    """
    why = f"{clone.job.id.shown} begins with what {original.shown} has"
    with open_job(original) as first, ExitStack() as stack:
        is_running = first.election.holder() is not None
        if not is_running:
            stack.enter_context(standing_still(first))
        before = _ends(first)
        commits = first.checkpoints.read()
        after = _ends(first) if is_running else before
        if not commits:
            raise JobError(
                f"job {original.shown} has no checkpoints: run it first, or say where the clone begins"
            )
        with open_job(clone.job.id, clone, must_exist=False) as second:
            _make(first, second, clone, why)
            tasks = second.task_inputs()
            commits = {
                task: replace(
                    commit, offsets={ssp: at for ssp, at in commit.offsets.items() if ssp in tasks[task]}
                )
                for task, commit in commits.items()
                if task in tasks
            }
            if clone.job.is_pipeline:
                copy_pipeline(first, second, commits, on_asking, is_running=is_running)
            else:
                _copy_tasks(first, second, commits, why, is_running=is_running)
            failpoint("clone.checkpoints-written")
            write_origin(second.stream, CloneOrigin(original.shown, before, after))
            History(second.stream).append("cloned", of=original.shown, to="checkpoint")


def begin_at(original: JobId, clone: Settings, start: Startpoint) -> None:
    """Let the clone, whose stores are empty, read each input from there.

    Raises:
        JobError: the original has never run, or the clone has been made already.
        GreteError: a system does not answer.
    """
    with open_job(original) as first, open_job(clone.job.id, clone, must_exist=False) as second:
        inputs = {ssp for ssps in first.task_inputs().values() for ssp in ssps}
        if not inputs:
            raise JobError(f"job {original.shown} has no tasks: run it first")
        _make(first, second, clone, f"{clone.job.id.shown} begins at {start}")
        startpoints: dict[Where, Startpoint] = {(ssp, None): start for ssp in inputs}
        write_startpoints(
            second, startpoints, {}, live=False, event="cloned", of=original.shown, to=str(start)
        )
        write_origin(second.stream, CloneOrigin(original.shown))


def _make(original: JobHandle, clone: JobHandle, settings: Settings, why: str) -> None:
    """A job with the original's tasks, which has not run."""
    if clone.state() is not None or read_origin(clone.stream) is not None:
        raise JobError(
            f"there is a job {clone.job.shown} already: name another, or: "
            f"grete job delete --job {clone.job.shown} --execute"
        )
    register(settings, clone.job, clone.home)
    with clone.election.stopped("it has just been started"):
        clone.stream.write_config(settings.raw, run_id=uuid.uuid4().hex, reason=why)
        TaskAssignments(clone.stream).write(
            (kind, key, message.values)
            for kind in _TASKS
            for key, message in original.stream.messages(kind).items()
        )
    failpoint("clone.made")


def _copy_tasks(
    original: JobHandle, clone: JobHandle, commits: Commits, why: str, *, is_running: bool
) -> None:
    for store in clone.settings.store_names:
        _copy_store(original, clone, store, commits if is_running else None)
        failpoint("clone.store-copied")
    offsets = {task: commit.offsets for task, commit in commits.items()}
    overwrite(clone, offsets, replace=True, live=False, reason=why)


def _copy_store(original: JobHandle, clone: JobHandle, store: str, at: Commits | None) -> None:
    before, after = (one.settings.store(store).changelog_stream(one.job) for one in (original, clone))
    with original.system(original.settings.task.commit_system) as system:
        system.ensure_stream(StreamSpec(after, system.partition_count(before), compacted=True))
    with tempfile.TemporaryDirectory(prefix="grete-clone-") as name:
        export_store(original, store, Path(name) / store, at)
        import_store(clone, store, Path(name) / store, execute=True)


def _ends(handle: JobHandle) -> Ends:
    found = {}
    for stream in handle.settings.task.own_outputs:
        with handle.system(stream.system) as system:
            offsets = system.offsets(stream.stream)
        found[str(stream)] = {partition: int(one.upcoming) for partition, one in offsets.items()}
    return found
