"""The driver's side of the commit: each share is committed where it ran (`commit.executor`), and reported to here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grete.checkpoint.store import CheckpointStore, copies
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.failpoints import failpoint
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.ids import TaskName
from grete.systems.commit_group import CommitGroup, SegmentWrite, TransactionalStore
from grete.tasks.results import TaskResult
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress, TaskReport
from grete.wire.metric_values import Metrics


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
        segments: Sequence[SegmentWrite],
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
    """The outcome of a batch, for progress and shutdown. `commit_s` is how long its transactions took."""

    records: int = 0
    commit_s: float = 0.0
    dead_letters: int = 0
    shutdown_tasks: set[int] = field(default_factory=set)
    shutdown_all: bool = False
    metrics: dict[TaskName, Metrics] = field(default_factory=dict)


class BatchCommits:
    """The committed state of a container's tasks. Called by one thread, one batch at a time.

    `plan` names what each task may build on and which tasks are done already; workers run and commit the tasks;
    `commit` takes in what they report. Kept apart from Spark so that the simulator can stop the world between any two
    of these steps.
    """

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
        self._log_end = spec.commit.log_end
        self._slot_workers: dict[int, str] = {}
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

    @property
    def next_batch(self) -> int:
        """The number after the last batch of any task: a start goes on counting, though its lineage is a new one."""
        return 1 + max((commit.batch_id for commit in self._commits.values()), default=-1)

    def plan(self, batch_id: int) -> BatchPlan:
        """The state that the tasks of this batch start from; a task that was shut down takes no part."""
        return BatchPlan(
            self._lineage,
            batch_id,
            self._progress,
            frozenset(self._shut_down),
            log_end=self._log_end,
            slot_workers=dict(self._slot_workers),
        )

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> BatchOutcome:
        """Make what the tasks of the batch have committed the state that the next batch builds on, and copy it.

        Raises:
            LogError: the copy was not made; what is remembered here has not moved.
        """
        outcome = BatchOutcome()
        if not results:
            return outcome
        results = sorted(results, key=lambda result: result.report.task)
        progress = {one.report.task: self._advance(one.report) for one in results}
        commits = {
            self.spec.tasks[index].name: self._task_commit(index, after, batch_id)
            for index, after in progress.items()
        }
        self._target.copy(commits)
        reports = [result.report for result in results]
        outcome.commit_s = commit_seconds(reports)
        self._log_end = max(self._log_end, *(report.committed_at for report in reports))
        self._slot_workers |= {report.slot: report.worker for report in reports}
        self._progress.update(progress)
        self._commits.update(commits)
        for result in results:
            _add(outcome, result.report)
            outcome.metrics[self.spec.tasks[result.report.task].name] = result.report.metrics
        self._shut_down |= outcome.shutdown_tasks
        return outcome

    def _advance(self, report: TaskReport) -> TaskProgress:
        before = self._progress[report.task]
        return replace(
            before,
            token=report.token,
            store_positions={**before.store_positions, **report.positions},
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


def _add(outcome: BatchOutcome, report: TaskReport) -> None:
    outcome.records += report.records
    outcome.dead_letters += report.dead_letters
    outcome.shutdown_all = outcome.shutdown_all or report.shutdown_all
    if report.shutdown_task:
        outcome.shutdown_tasks.add(report.task)


def commit_seconds(reports: Iterable[TaskReport]) -> float:
    """How long executors took to commit a batch: a worker's commits follow each other, several workers' do not."""
    of_slots = {(report.worker, report.slot): report.commit_s for report in reports}
    by_worker: dict[str, float] = {}
    for (worker, _), commit_s in of_slots.items():
        by_worker[worker] = by_worker.get(worker, 0.0) + commit_s
    return max(by_worker.values(), default=0.0)
