"""What a container has committed, and how a batch's results become the next commit. No Spark in here.

The order of a batch: `plan` says what each task may build on and which tasks are done already; somebody runs the
tasks; `commit` makes outputs, changelog records and checkpoints visible in one transaction. Kept apart from Spark
so that the seeded simulator can stop the world between any two of these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from grete.checkpoint.store import CheckpointStore, copies
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.errors import LogCorrupted
from grete.failpoints import failpoint
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.ids import TaskName
from grete.systems.base import CommitGroup, Segment, SegmentWrite, TransactionalStore
from grete.tasks.hand_over import IN_FILE, stored
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress, TaskReport


@dataclass(frozen=True, slots=True)
class CommitTarget:
    """Where a container's batches are committed, and under which fences; `copy_to` gets the checkpoints after."""

    store: TransactionalStore
    fences: tuple[Fence, ...]
    checkpoint_log: str
    grouper: str
    now_ms: Callable[[], int]
    copy_to: CheckpointStore | None = None

    def commit(
        self,
        segments: Sequence[Segment],
        commits: Mapping[TaskName, TaskCommit],
        *,
        also: Sequence[Entry] = (),
    ) -> dict[tuple[str, int], int]:
        """Commit in one transaction, then copy; returns the upcoming offset of every (stream, partition) written.

        `also` goes into the checkpoint log beside the checkpoints.

        Raises:
            Fenced, InDoubt, StorageFull: see TransactionalStore.commit; or the copy was not made, and the container
                has to end: its next start knows the copy for an old one.
        """
        group = CommitGroup(
            fences=self.fences,
            segments=segments,
            checkpoint_log=self.checkpoint_log,
            checkpoint_entries=[*commit_entries(commits, grouper=self.grouper), *also],
        )
        failpoint("commit.before")
        ends = self.store.commit(group)
        failpoint("commit.after-transaction")
        self.copy(commits)
        failpoint("commit.after")
        return ends

    def copy(self, commits: Mapping[TaskName, TaskCommit]) -> None:
        """Give the checkpoint store its copy of what is committed."""
        if self.copy_to is not None and commits:
            self.copy_to.write(copies(commits))


@dataclass(slots=True)
class BatchOutcome:
    """What a batch did, for progress and shutdown. `commit_s` is how long its transactions took, where they were."""

    records: int = 0
    commit_s: float = 0.0
    dead_letters: int = 0
    shutdown_tasks: set[int] = field(default_factory=set)
    shutdown_all: bool = False


class BatchCommits:
    """The committed state of a container's tasks. Called by one thread, one batch at a time."""

    def __init__(
        self,
        spec: RunnerSpec,
        target: CommitTarget,
        lineage: str,
        commits: Mapping[TaskName, TaskCommit],
        store_positions: Mapping[int, Mapping[str, int]],
    ) -> None:
        self.spec = spec
        self._target = target
        self._lineage = lineage
        self._commits = dict(commits)
        self._shut_down: set[int] = set()
        self._log_end = -1 if spec.commit is None else spec.commit.log_end
        self._slot_workers: dict[int, str] = {}
        self._changelogs = {store.changelog_stream for store in spec.stores}
        self._progress = {
            task.index: TaskProgress(
                token=self._token_of(task.name, store_positions[task.index]),
                store_positions=store_positions[task.index],
                last_offsets=self._last_offsets(task.name),
            )
            for task in spec.tasks
        }

    def _token_of(self, task: TaskName, positions: Mapping[str, int]) -> str:
        """The committed attempt's token, valid while the changelogs hold what that attempt appended to them."""
        commit = self._commits.get(task)
        if commit is None or any(
            end > positions.get(name, end) for name, end in commit.store_positions.items()
        ):
            return ""
        return commit.token

    def _last_offsets(self, task: TaskName) -> dict[int, int]:
        commit = self._commits.get(task)
        if commit is None:
            return {}
        indexes = {ssp: index for index, ssp in enumerate(self.spec.ssps)}
        return {indexes[ssp]: int(offset) for ssp, offset in commit.offsets.items() if ssp in indexes}

    def plan(self, batch_id: int) -> BatchPlan:
        """What the tasks of this batch start from; a task that its checkpoint says is done takes no part."""
        return BatchPlan(
            lineage=self._lineage,
            batch_id=batch_id,
            progress=self._progress,
            skip=frozenset(self._covered(batch_id) | self._shut_down),
            log_end=self._log_end,
            slot_workers=dict(self._slot_workers),
        )

    def _covered(self, batch_id: int) -> set[int]:
        """Tasks that have committed this batch of this lineage: Spark repeats a batch it has not seen the end of."""
        return {
            task.index
            for task in self.spec.tasks
            if task.name in self._commits
            and self._commits[task.name].lineage == self._lineage
            and self._commits[task.name].batch_id >= batch_id
        }

    def commit(self, reports: list[TaskReport], segments: Sequence[Segment], batch_id: int) -> BatchOutcome:
        """Commit what the tasks of the batch handed back, in one transaction; or take in what executors committed.

        Raises:
            Fenced, InDoubt, StorageFull: see TransactionalStore.commit; what is remembered here has not moved.
            LogCorrupted: somebody else writes to a changelog of ours.
        """
        outcome = BatchOutcome()
        if not reports:
            return outcome
        progress = {report.task: self._advance(report) for report in reports}
        commits = {
            self.spec.tasks[index].name: self._task_commit(index, after, batch_id)
            for index, after in progress.items()
        }
        if self.spec.commit is None:
            ends = self._target.commit(segments, commits)
            self._check_changelogs(progress, ends)
        else:
            self._target.copy(commits)
            self._remember(reports)
            outcome.commit_s = commit_seconds(reports)
        self._progress.update(progress)
        self._commits.update(commits)
        for report in reports:
            _add(outcome, report)
        self._shut_down |= outcome.shutdown_tasks
        return outcome

    def _remember(self, reports: list[TaskReport]) -> None:
        """Who holds which slot, and up to where the checkpoint log is of batches before the next."""
        self._log_end = max(self._log_end, *(report.committed_at for report in reports))
        self._slot_workers |= {report.slot: report.worker for report in reports}

    def _advance(self, report: TaskReport) -> TaskProgress:
        before = self._progress[report.task]
        if self.spec.commit is not None:
            return replace(
                before,
                token=report.token,
                store_positions={**before.store_positions, **report.positions},
                last_offsets={**before.last_offsets, **report.last_offsets},
            )
        positions = {
            name: position + report.changes.get(name, 0) for name, position in before.store_positions.items()
        }
        return replace(
            before,
            token=report.token,
            store_positions=positions,
            last_offsets={**before.last_offsets, **report.last_offsets},
        )

    def _task_commit(self, index: int, progress: TaskProgress, batch_id: int) -> TaskCommit:
        offsets = {self.spec.ssps[i]: str(offset) for i, offset in progress.last_offsets.items()}
        return TaskCommit(
            offsets=offsets,
            lineage=self._lineage,
            batch_id=batch_id,
            token=progress.token,
            store_positions=progress.store_positions,
        )

    def _check_changelogs(
        self, progress: Mapping[int, TaskProgress], ends: Mapping[tuple[str, int], int]
    ) -> None:
        """We are the only writer of our changelogs; an end that is not ours means that somebody else wrote."""
        for index, after in progress.items():
            partition = self.spec.tasks[index].changelog_partition
            for store in self.spec.stores:
                end = ends.get((store.changelog_stream, partition))
                if end is not None and end != after.store_positions[store.name]:
                    raise LogCorrupted(
                        f"changelog {store.changelog_stream} partition {partition} ends at {end}, expected "
                        f"{after.store_positions[store.name]}: another program writes to it"
                    )


def commit_seconds(reports: Iterable[TaskReport]) -> float:
    """How long executors took to commit a batch: a worker's commits follow each other, several workers' do not."""
    of_slots = {(report.worker, report.slot): report.commit_s for report in reports}
    by_worker: dict[str, float] = {}
    for (worker, _), commit_s in of_slots.items():
        by_worker[worker] = by_worker.get(worker, 0.0) + commit_s
    return max(by_worker.values(), default=0.0)


def sort_out(result: Iterable[dict[str, Any]]) -> tuple[list[TaskReport], list[Segment]]:
    """Reports and segments out of the rows the tasks handed back, in task order."""
    reports: list[TaskReport] = []
    segments: list[Segment] = []
    rows = sorted(result, key=lambda row: row["task"])
    for row in rows:
        if row["kind"] == "r":
            reports.append(_report(row["data"]))
        elif row["kind"] == IN_FILE:
            segments.append(stored(row))
        else:
            segments.append(SegmentWrite(row["stream"], row["partition"], row["count"], row["data"]))
    return reports, segments


def _report(data: bytes) -> TaskReport:
    document = orjson.loads(data)
    document["last_offsets"] = {int(index): offset for index, offset in document["last_offsets"].items()}
    return TaskReport(**document)


def _add(outcome: BatchOutcome, report: TaskReport) -> None:
    outcome.records += report.records
    outcome.dead_letters += report.dead_letters
    outcome.shutdown_all = outcome.shutdown_all or report.shutdown_all
    if report.shutdown_task:
        outcome.shutdown_tasks.add(report.task)
