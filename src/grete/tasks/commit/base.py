"""Ports of the commit: `BatchCommits` on the driver, `ShareCommits` on the workers; and the target of both.

On the embedded system the driver commits a batch in one transaction (`commit.driver`), and workers hand over what
they made (`tasks.hand_over`). On systems whose transactions are the executors' workers commit each share where it was
processed (`commit.executor`), and the driver takes in their reports (`commit.reported`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grete.checkpoint.store import CheckpointStore, copies
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.failpoints import failpoint
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.ids import TaskName
from grete.systems.commit_group import CommitGroup, Segment, TransactionalStore
from grete.tasks.results import Processed, TaskResult
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress, TaskReport
from grete.wire.metric_values import Metrics


class ShareCommits(ABC):
    """Takes what the tasks of a share made, where they ran: `begin`, `add` for each task, `finish`.

    A share that fails begins again; of one that was not finished nothing is ever visible. Used by one thread.
    """

    holds_share: bool = False
    """Whether the tasks of a share are committed together by `finish`, so that all have to be open until then."""

    @abstractmethod
    def begin(
        self, plan: BatchPlan, slot: int, tasks: Collection[int], *, is_repeated: bool
    ) -> list[TaskResult]:
        """Results of the share's tasks that are committed already; called before they run.

        Raises:
            Fenced: another container has taken over.
            LogError: the brokers did not answer.
        """

    @abstractmethod
    def add(self, made: Processed) -> None:
        """Take one task's results. Changes of its stores are pending in their files by now, or by `finish`."""

    @abstractmethod
    def finish(self) -> list[TaskResult]:
        """The results of the tasks that were added, for `BatchCommits.commit`.

        Raises:
            Fenced: another container has taken over; nothing was written.
            InDoubt: the outcome is unknown; the next attempt finds out.
            ProcessingError: a record is larger than its topic takes; nothing was written.
            LogError: nothing was written.
        """


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
    """The outcome of a batch, for progress and shutdown. `commit_s` is how long its transactions took."""

    records: int = 0
    commit_s: float = 0.0
    dead_letters: int = 0
    shutdown_tasks: set[int] = field(default_factory=set)
    shutdown_all: bool = False
    metrics: dict[TaskName, Metrics] = field(default_factory=dict)


class BatchCommits(ABC):
    """The committed state of a container's tasks. Called by one thread, one batch at a time.

    `plan` names what each task may build on and which tasks are done already; workers run the tasks; `commit` takes
    what they answer. Kept apart from Spark so that the simulator can stop the world between any two of these steps.
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
        return BatchPlan(self._lineage, batch_id, self._progress, frozenset(self._shut_down))

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> BatchOutcome:
        """Make what the tasks of the batch answered the state that the next batch builds on; durable on return.

        Raises:
            Fenced, InDoubt, StorageFull: see TransactionalStore.commit; what is remembered here has not moved.
            LogCorrupted: another program writes to a changelog of ours.
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
        outcome.commit_s = self._make_durable(results, progress, commits)
        self._progress.update(progress)
        self._commits.update(commits)
        for result in results:
            _add(outcome, result.report)
            outcome.metrics[self.spec.tasks[result.report.task].name] = result.report.metrics
        self._shut_down |= outcome.shutdown_tasks
        return outcome

    @abstractmethod
    def _make_durable(
        self,
        results: Sequence[TaskResult],
        progress: Mapping[int, TaskProgress],
        commits: Mapping[TaskName, TaskCommit],
    ) -> float:
        """Commit what the workers have not; returns how many seconds their own commits took."""

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
