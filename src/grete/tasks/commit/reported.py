"""Commits on executors, as the driver takes them in: it copies checkpoints and remembers the holders of slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grete.checkpoint.task_commit import TaskCommit
from grete.model.ids import TaskName
from grete.tasks.commit.base import BatchCommits, CommitTarget
from grete.tasks.results import TaskResult
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress, TaskReport


class ReportedCommits(BatchCommits):
    """Takes in what workers report that they have committed."""

    def __init__(
        self,
        spec: RunnerSpec,
        target: CommitTarget,
        lineage: str,
        commits: Mapping[TaskName, TaskCommit],
        store_positions: Mapping[int, Mapping[str, int]],
    ) -> None:
        super().__init__(spec, target, lineage, commits, store_positions)
        assert spec.commit is not None, "the system said that executors commit"
        self._log_end = spec.commit.log_end
        self._slot_workers: dict[int, str] = {}

    def plan(self, batch_id: int) -> BatchPlan:
        """See BatchCommits."""
        plan = super().plan(batch_id)
        return replace(plan, log_end=self._log_end, slot_workers=dict(self._slot_workers))

    def _make_durable(
        self,
        results: Sequence[TaskResult],
        progress: Mapping[int, TaskProgress],
        commits: Mapping[TaskName, TaskCommit],
    ) -> float:
        self._target.copy(commits)
        reports = [result.report for result in results]
        self._log_end = max(self._log_end, *(report.committed_at for report in reports))
        self._slot_workers |= {report.slot: report.worker for report in reports}
        return commit_seconds(reports)


def commit_seconds(reports: Iterable[TaskReport]) -> float:
    """How long executors took to commit a batch: a worker's commits follow each other, several workers' do not."""
    of_slots = {(report.worker, report.slot): report.commit_s for report in reports}
    by_worker: dict[str, float] = {}
    for (worker, _), commit_s in of_slots.items():
        by_worker[worker] = by_worker.get(worker, 0.0) + commit_s
    return max(by_worker.values(), default=0.0)
