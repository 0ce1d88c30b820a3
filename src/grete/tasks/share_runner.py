"""What a Spark task of a batch does in its Python worker: take a share, process it, and commit it if executors do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from grete.failpoints import failpoint
from grete.model.ending import failure_of, note
from grete.tasks.hand_over import HandOver
from grete.tasks.ranges import read_up_to, rows_of
from grete.tasks.read_plan import range_rows
from grete.tasks.results import TaskResult
from grete.tasks.runner import TaskRun, report_row, result_of, run_tasks, runs_of
from grete.tasks.runtime import TaskWorkers
from grete.tasks.shares import Shares
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress
from grete.tasks.worker_logs import attach_logs, flush_logs, hurry_logs

_workers: TaskWorkers | None = None


def _workers_for(spec: RunnerSpec) -> TaskWorkers:
    """This process's tasks; those of another container are given up first."""
    global _workers  # one Python worker serves one container at a time; a module is its only memory
    if _workers is None or _workers.spec.incarnation != spec.incarnation:
        if _workers is not None:
            _workers.close()
        attach_logs(spec)
        _workers = TaskWorkers(spec)
    return _workers


@contextmanager
def at_work(spec: RunnerSpec) -> Iterator[TaskWorkers]:
    """This process's tasks; what they logged is on its way afterwards, and if they failed it is there."""
    try:
        yield _workers_for(spec)
    except BaseException as error:
        note(error, failure_of(error))  # the driver gets its text
        flush_logs()
        raise
    hurry_logs()


@dataclass(frozen=True, slots=True)
class Share:
    """What the tasks of a slot read in a batch. `is_repeated` when Spark has tried it before."""

    slot: int
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class ShareRunner:
    """What a Spark task of a batch does: take a share, process it, and commit it if executors do."""

    spec: RunnerSpec
    plan: BatchPlan
    shares: Shares
    results: str
    """Where what is too much for an answer is left for the driver."""

    def __call__(self, number: int, *, is_repeated: bool) -> tuple[int, str, list[dict[str, Any]]]:
        """Process a share; returns its slot, who did it, and rows with the names of `ResultRow`'s fields."""
        spec, plan = self.spec, self.plan
        with at_work(spec) as workers:
            slot = self.shares.take(workers.id, number)
            ranges = range_rows(self.shares.groups[slot], tick=self.shares.tick)
            if spec.commit is None:
                read = rows_of(workers.system, spec.ssps, [ranges], plan.skip)
                with HandOver(self.results, len(self.shares.groups)) as out:
                    rows = run_tasks(workers, plan, read, out.placed)
            else:
                rows = run_share(workers, plan, Share(slot, is_repeated), [ranges])
                failpoint("executor.reported")
            return slot, workers.id, rows.to_pylist()


def run_share(
    workers: TaskWorkers, plan: BatchPlan, share: Share, ranges: Sequence[pa.RecordBatch]
) -> pa.RecordBatch:
    """Process ranges and commit what came of them, unless an earlier attempt has; returns the reports."""
    pieces = [piece for batch in ranges for piece in runs_of(batch, 0)]
    tasks = {task for task, _ in pieces} - plan.skip
    reports = workers.commits.begin(plan, share.slot, tasks, is_repeated=share.is_repeated)
    done = plan.skip | {report.task for report in reports}
    runs: list[tuple[TaskRun, TaskResult]] = []
    workers.make_room(len(tasks))
    try:
        for index, piece in pieces:
            if index not in done:
                run = TaskRun(workers.worker(index), plan.progress.get(index, TaskProgress()), workers.spec)
                slices = rows_of(workers.system, workers.spec.ssps, [piece])
                runs.append((run, run.process(slices, read_up_to(piece))))
        reports += workers.commits.finish(plan, share.slot, [result for _, result in runs])
    except BaseException:
        for index in tasks:
            workers.drop(index)
        raise
    tokens = {report.token for report in reports}
    for run, result in runs:
        if result.report.token in tokens:
            run.succeeded()
    return result_of([report_row(report) for report in reports])
