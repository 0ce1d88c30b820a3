"""Which batches the checkpoint log still has, and each task's commit after them.

Every commit of a task stays in the log until the log is compacted, which leaves the last one. Compaction drops the
older ones of a key first, so what is left of a task is always its newest commits without a hole: the last one at or
before a point of the log is what held there, or it is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grete.checkpoint.task_commit import STORES_MOVED, TaskCommit, companion_of
from grete.errors import JobError, WireError
from grete.keyed_log.base import Record
from grete.model.ids import SystemStreamPartition, TaskName


@dataclass(frozen=True, slots=True)
class KnownCommit:
    """A commit, where it is in the log, and when it was written, by the wall clock."""

    commit: TaskCommit
    log_offset: int
    timestamp_ms: int


_COMPANION = b"grete-commit"
History = Mapping[TaskName, Sequence[KnownCommit]]


def commit_history(records: Iterable[Record]) -> dict[TaskName, list[KnownCommit]]:
    """Every commit in the log by task, oldest first; what is not understood is skipped."""
    found: dict[TaskName, list[KnownCommit]] = {}
    for record in records:
        if record.value is None or _COMPANION not in record.key:
            continue
        try:
            task, commit = companion_of(record)
        except WireError:
            continue
        if commit is not None:
            if commit.token == STORES_MOVED:
                found.pop(task, None)  # its stores cannot go back to where they were before
            found.setdefault(task, []).append(KnownCommit(commit, record.offset, record.timestamp_ms))
    return found


def lineage_of(history: History, tasks: Iterable[TaskName], batch_id: int) -> str:
    """The lineage in which one of these tasks committed the batch of this number last.

    Each start of StreamTasks is a lineage, and goes on counting. The lineage that ran last is returned where none has
    the batch.

    Raises:
        JobError: none of them has committed a batch.
    """
    commits = [one for task in tasks for one in history.get(task, ()) if one.commit.lineage]
    if not commits:
        raise JobError(f"no batch of {', '.join(sorted(tasks))} is known")
    numbered = [one for one in commits if one.commit.batch_id == batch_id]
    return max(numbered or commits, key=lambda one: one.log_offset).commit.lineage


def find_lineage(history: History, prefix: str) -> str:
    """The lineage that begins with `prefix`.

    Raises:
        JobError: none does, or several do; names those that are known.
    """
    known = {one.commit.lineage for commits in history.values() for one in commits if one.commit.lineage}
    found = sorted(lineage for lineage in known if lineage.startswith(prefix))
    if len(found) != 1:
        names = ", ".join(sorted(lineage[:8] for lineage in known)) or "none"
        raise JobError(
            f"{'no' if not found else 'more than one'} known lineage begins with {prefix!r}; known are: {names}"
        )
    return found[0]


def commits_after_batch(
    history: History, tasks: Iterable[TaskName], batch_id: int, lineage: str
) -> dict[TaskName, TaskCommit]:
    """The commit of each of these tasks as of a batch of the lineage.

    A task without records in that batch stands where it stood then. One that has never committed is left out.

    Raises:
        JobError: the lineage has no such batch, or it is not known any more; names the batches that are.
    """
    batches = [one for commits in history.values() for one in commits if one.commit.lineage == lineage]
    numbers = [one.commit.batch_id for one in batches]
    if not numbers or batch_id > max(numbers):
        last = f"its last is {max(numbers)}" if numbers else "it has none"
        raise JobError(f"lineage {lineage[:8]} has no batch {batch_id}: {last}")
    end = max((one.log_offset for one in batches if one.commit.batch_id <= batch_id), default=-1)
    found = {}
    for task in tasks:
        if not history.get(task):
            continue  # compaction always leaves the last commit, so there was none
        then = [one for one in history.get(task, ()) if one.log_offset <= end]
        if not then:
            raise JobError(
                f"task {task!r}: where it stood after batch {batch_id} of lineage {lineage[:8]} is not known (any "
                f"more): its first known commit is {_named(history[task][0].commit)}"
            )
        found[task] = then[-1].commit
    return found


def _named(commit: TaskCommit) -> str:
    return f"batch {commit.batch_id} of lineage {commit.lineage[:8]}" if commit.lineage else "of an operator"


def ended_at(commit: TaskCommit, next_offsets: Mapping[SystemStreamPartition, int]) -> bool:
    """Whether exactly these offsets were the next to be read after the commit.

    An SSP that a commit does not name was not read by then, so its offset has to be 0.
    """
    ends = {ssp: int(offset) + 1 for ssp, offset in commit.offsets.items()}
    return bool(ends) and all(ends.get(ssp, 0) == offset for ssp, offset in next_offsets.items())


def commit_that_ended_at(
    commits: Sequence[KnownCommit], next_offsets: Mapping[SystemStreamPartition, int]
) -> TaskCommit | None:
    """The last commit that ended at these offsets."""
    return next((one.commit for one in reversed(commits) if ended_at(one.commit, next_offsets)), None)
