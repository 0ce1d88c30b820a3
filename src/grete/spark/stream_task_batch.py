"""A micro-batch of StreamTasks on the driver: run the tasks, then commit everything they did in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from grete.checkpoint.task_commit import TaskCommit
from grete.failpoints import failpoint
from grete.model.ids import TaskName
from grete.spark.batch_commits import BatchCommits, sort_out
from grete.spark.batch_commits import BatchOutcome as BatchOutcome
from grete.spark.batch_commits import CommitTarget as CommitTarget
from grete.spark.plan import RunnerSpec
from grete.spark.spark_log import SourceOffsets
from grete.spark.task_runner import RESULT_SCHEMA, Share, run_ranges


class StreamTaskBatch:
    """Runs and commits the batches of one container. Called by one thread, one batch at a time."""

    def __init__(
        self,
        spec: RunnerSpec,
        target: CommitTarget,
        lineage: str,
        commits: Mapping[TaskName, TaskCommit],
        store_positions: Mapping[int, Mapping[str, int]],
    ) -> None:
        self._spec = spec
        self._commits = BatchCommits(spec, target, lineage, commits, store_positions)

    def run(self, batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
        """Run the batch and commit it."""
        plan = self._commits.plan(batch_id)
        failpoint("batch.before-run")
        spec = self._spec

        def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_ranges(spec, plan, _share(), batches)

        result = batch.mapInArrow(run_tasks, RESULT_SCHEMA).toArrow()
        failpoint("batch.after-run")
        reports, segments = sort_out(result.to_pylist())
        started_s = time.monotonic()
        outcome = self._commits.commit(reports, segments, batch_id)
        outcome.commit_s = time.monotonic() - started_s
        failpoint("batch.after-commit")
        return outcome


def _share() -> Share:
    context = TaskContext.get()
    assert context is not None, "Spark runs this on an executor"
    return Share(context.partitionId(), is_repeated=context.attemptNumber() > 0)


RunBatch = Callable[[DataFrame, int, SourceOffsets], BatchOutcome]
