"""A container's checkpoints: what is committed of its tasks, in the checkpoint log and in a store beside it."""

from __future__ import annotations

import logging
from pathlib import Path

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import CheckpointStore, StoreContext, resolve
from grete.checkpoint.task_commit import TaskCommit, last_commits
from grete.clock import Clock
from grete.container.assignment import Assignment
from grete.container.process_state import KnownCommits
from grete.keyed_log.base import KeyedLog
from grete.model.ids import TaskName
from grete.systems.base import System
from grete.tasks.commit.base import CommitTarget

_log = logging.getLogger("grete.container")


def committed(
    assignment: Assignment, system: System, known: KnownCommits | None = None
) -> dict[TaskName, TaskCommit]:
    """The container's tasks with their commits, as the checkpoint log has them; only what is not `known` is read."""
    log = system.checkpoint_log(checkpoint_log_name(assignment.job))
    mine = {task.name for task in assignment.tasks}
    if known is not None and mine <= known.tasks:
        found = {**known.commits, **last_commits(log, known.log_end)}
    else:
        found = last_commits(log)
    return {task: commit for task, commit in found.items() if task in mine}


def reconcile_checkpoint_store(
    assignment: Assignment, system: System, target: CommitTarget, known: KnownCommits | None = None
) -> dict[TaskName, TaskCommit]:
    """Bring checkpoint log and checkpoint store to say the same; returns the commits that count.

    An offset that an operator or another program wrote into the store becomes the log's, under the fence, and the
    store becomes a copy of the log again. A checkpoint of Samza's with changelog marks becomes the log's when the
    task's stores are brought to it (`samza_state.take_over`).

    Raises:
        Fenced: another incarnation has taken over.
        LogCorrupted: the store has a checkpoint that cannot be read, and the log has none.
    """
    logged = committed(assignment, system, known)
    if target.copy_to is None:
        return logged
    resolved = resolve(logged, target.copy_to.read({task.name for task in assignment.tasks}))
    moved = {task: resolved.commits[task] for task in sorted(resolved.moved)}
    for task, commit in moved.items():
        _log.info("task %s was moved in the checkpoint store, to %s", task, dict(commit.offsets))
    whole = {task: commit for task, commit in moved.items() if not commit.changelog_marks}
    if whole:
        target.commit([], whole)
    target.copy({task: resolved.commits[task] for task in resolved.stale})
    return dict(resolved.commits)


def checkpoint_store(
    assignment: Assignment, clock: Clock, home: Path, coordinator_log: KeyedLog | None = None
) -> CheckpointStore | None:
    """The store that `task.checkpoint.factory` names, None when the checkpoint log is all there is."""
    settings = assignment.settings
    return open_store(StoreContext(assignment.job, settings, home, clock, assignment.fence, coordinator_log))


def commit_target(
    assignment: Assignment, system: System, clock: Clock, store: CheckpointStore | None = None
) -> CommitTarget:
    """Where the container's batches are committed, under its fence."""
    return CommitTarget(
        store=system,
        fences=(assignment.fence,),
        checkpoint_log=checkpoint_log_name(assignment.job),
        grouper=assignment.settings.job.ssp_grouper,
        now_ms=clock.wall_ms,
        copy_to=store,
    )
