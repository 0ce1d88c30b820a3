"""Brings the stores of a job that comes from Samza to where its checkpoints say.

Samza writes changelogs as it processes and commits now and then, never when it stops: a changelog is ahead of the
checkpoint by what came after the last commit, and the messages that made it are processed again. So Samza's
checkpoints say where the changelogs stood (`TaskCommit.changelog_marks`), and a store goes back to there when it is
restored (TransactionalStateTaskRestoreManager), by records that give each key that was changed since its value then.

Here these records and the task's first checkpoint of grete's are one transaction under the container's fence: a
container that dies leaves a task as Samza left it, or taken over. From then on the changelog holds nothing but what
is committed, for every reader: containers, standby ones, and Samza, if the job moves back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from grete.checkpoint.task_commit import TaskCommit
from grete.config.settings.tasks import TaskSettings
from grete.container.assignment import AssignedTask, Assignment
from grete.errors import JobError
from grete.model.ids import TaskName
from grete.systems.base import System
from grete.systems.commit_group import SegmentWrite
from grete.tasks.commit.base import CommitTarget
from grete.tasks.stores.rewind import Changelog
from grete.wire.checkpoint_json import ChangelogMarks

_log = logging.getLogger("grete.container")


def take_over(
    assignment: Assignment, system: System, target: CommitTarget, commits: Mapping[TaskName, TaskCommit]
) -> dict[TaskName, TaskCommit]:
    """Bring the stores of tasks whose checkpoint Samza wrote to it, and make it a checkpoint of grete's.

    Raises:
        Fenced: another incarnation has taken over; nothing was written.
        JobError: compaction may have removed records that make up the state at the checkpoint. Other tasks may be
            taken over by then; this one is as it was.
    """
    state = assignment.settings.task
    after = dict(commits)
    for task in assignment.tasks:
        before = commits.get(task.name)
        if before is None and (state.retains_state or not state.restores_state):
            continue  # it begins with what its changelogs hold, as in Samza
        if before is not None and not before.changelog_marks:
            continue
        commit, segments = _taken_over(assignment, system, task, before, target.now_ms())
        if before is None and not segments:
            continue
        target.commit(segments, {task.name: commit})
        after[task.name] = commit
    return after


def _taken_over(
    assignment: Assignment, system: System, task: AssignedTask, before: TaskCommit | None, now_ms: int
) -> tuple[TaskCommit, list[SegmentWrite]]:
    """(the checkpoint, without marks; the records that bring the stores to it)."""
    settings = assignment.settings
    positions: dict[str, int] = {}
    segments: list[SegmentWrite] = []
    checkpoint = TaskCommit({}) if before is None else before
    for store in [] if settings.job.is_pipeline else settings.store_names:
        stream = settings.store(store).changelog_stream(assignment.job)
        expires = settings.store(store).is_expiring
        changelog = Changelog(system, stream, task.changelog_partition, is_expiring=expires)
        changes = _undone(settings.task, f"task {task.name!r}: store {store!r}", changelog, checkpoint)
        positions[store] = changelog.end + len(changes)
        segments += changelog.segments(changes, now_ms)
    return TaskCommit(checkpoint.offsets, store_positions=positions), segments


def _undone(
    state: TaskSettings, what: str, changelog: Changelog, checkpoint: TaskCommit
) -> dict[bytes, bytes | None]:
    """The records that bring one store to where the checkpoint says."""
    position, end = restored_to(state, changelog, checkpoint.changelog_marks), changelog.end
    if position is None or position == end:
        return {}
    if position == 0:
        changes = changelog.back_to_nothing()
    else:
        try:
            check_known(changelog, position)
        except JobError as error:
            raise JobError(f"{what} cannot be brought to its checkpoint: {error}. {RESTORE_ALL}") from error
        changes = changelog.undone_after(position)
    _log.warning(
        "%s goes back to offset %d of %s partition %d, where Samza committed last; the values of %d keys that came "
        "after it, up to offset %d, are undone, and what made them is processed again",
        *(what, position, changelog.stream, changelog.partition, len(changes), end),
    )
    return changes


def restored_to(state: TaskSettings, changelog: Changelog, marks: ChangelogMarks) -> int | None:
    """The position of a changelog to which Samza's checkpoint belongs; None: all that is in it counts.

    An offset that the changelog does not hold means another changelog, or one with a retention: all that is there
    counts, as in Samza. One that is null means that nothing was in it (Samza itself does not distinguish that from
    nothing noted, so what it processed before its first commit counts twice there). Where nothing is noted,
    `task.transactional.state.retain.existing.state` says what becomes of it.
    """
    ends = changelog.system.offsets(changelog.stream)[changelog.partition]
    if ends.oldest is None or not state.restores_state:
        return None
    place = (changelog.stream, changelog.partition)
    noted = [offset for ssp, offset in marks.items() if (ssp.stream, ssp.partition) == place]
    if not noted:
        return None if state.retains_state else 0
    (last,) = noted
    if last is None:
        return 0
    return int(last) + 1 if int(ends.oldest) <= int(last) < int(ends.upcoming) else None


RESTORE_ALL = (
    "Start the Samza job once more and stop it when it has committed all that came in; or set "
    "task.transactional.state.restore.enabled=false to take all that is in the changelogs, which counts twice what "
    "Samza processed after its last commit"
)


def check_known(changelog: Changelog, position: int) -> None:
    """Whether the state at `position` follows from what the changelog holds.

    Samza goes by the time: after nine tenths of `min.compaction.lag.ms` it takes all there is, and what it had
    processed after its last commit counts twice. Here it is enough that nothing was removed.

    Raises:
        JobError: says what may be missing.
    """
    if changelog.system.is_compacted(changelog.stream):
        changelog.check_whole(position)
    # what a retention has removed is gone from Samza's store as well
