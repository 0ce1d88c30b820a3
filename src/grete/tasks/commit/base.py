"""The driver's side of the commit: each share is committed where it ran (`commit.executor`), and reported to here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grete.checkpoint.store import CheckpointStore, copies
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.failpoints import failpoint
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition, TaskName
from grete.systems.commit_group import CommitGroup, SegmentWrite, TransactionalStore
from grete.tasks.spec import RunnerSpec, TaskProgress, TaskReport, advanced
from grete.wire.metric_values import Metrics
from grete.wire.traces import TracedBatch


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
        segments: Iterable[SegmentWrite],
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
    """The outcome of some commits, for progress and shutdown. `commit_s` is how long their transactions took.

    `cpu_s` is what a share's process has computed for them, in seconds of a processor; 0 of a pipeline.
    `rewound_ms` is when an operator asked to move, where these are the first that begin from there.
    """

    commits: int = 1
    records: int = 0
    commit_s: float = 0.0
    cpu_s: float = 0.0
    dead_letters: int = 0
    shutdown_tasks: set[int] = field(default_factory=set)
    shutdown_all: bool = False
    metrics: dict[TaskName, Metrics] = field(default_factory=dict)
    traced: Sequence[TracedBatch] = ()
    rewound_ms: int | None = None


class CommittedTasks:
    """The committed state of a container's tasks, as their shares report it. Called by one thread at a time."""

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
        self.taken: dict[TaskName, TaskCommit] = {}
        """The last reported commit of each task that has made one."""
        self._batches: dict[int, int] = {}
        self.shut_down: set[int] = set()
        """The tasks that have asked to take no further part."""
        indexes = {ssp: index for index, ssp in enumerate(spec.ssps)}
        self.progress = {
            task.index: TaskProgress(
                token=self._token_of(task.name, store_positions[task.index]),
                store_positions=store_positions[task.index],
                last_offsets=self._last_offsets(task.name, indexes),
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

    def _last_offsets(self, task: TaskName, indexes: Mapping[SystemStreamPartition, int]) -> dict[int, int]:
        commit = self._commits.get(task)
        if commit is None:
            return {}
        return {indexes[ssp]: int(offset) for ssp, offset in commit.offsets.items() if ssp in indexes}

    @property
    def next_batch(self) -> int:
        """The number after the last batch of any task: a start goes on counting, though its lineage is a new one."""
        return 1 + max((commit.batch_id for commit in self._commits.values()), default=-1)

    def take(self, reports: Sequence[TaskReport], batch_id: int) -> BatchOutcome:
        """Take note of what tasks of a share have committed, up to this number, and copy their checkpoints.

        An attempt at the share that was taken for lost may report what its successor has gone on from: that counts
        and changes nothing.

        Raises:
            LogError: the copy was not made; what is remembered here has not moved.
        """
        outcome = BatchOutcome()
        if not reports:
            return outcome
        reports = sorted(reports, key=lambda report: report.task)
        news = [one for one in reports if one.batch_id > self._batches.get(one.task, -1)]
        progress = {one.task: advanced(self.progress[one.task], one) for one in news}
        commits = {
            self.spec.tasks[one.task].name: self._task_commit(one.task, progress[one.task], one.batch_id)
            for one in news
        }
        self._target.copy(commits)
        self._batches.update({one.task: one.batch_id for one in news})
        self.progress.update(progress)
        self._commits.update(commits)
        self.taken.update(commits)
        outcome.commit_s = max(report.commit_s for report in reports)
        for report in reports:
            _add(outcome, report)
            outcome.metrics[self.spec.tasks[report.task].name] = report.metrics
        self.shut_down |= outcome.shutdown_tasks
        return outcome

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
