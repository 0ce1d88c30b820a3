"""A micro-batch of a DataFramePipeline on Kafka: Spark writes its rows from the executors, then the driver commits.

At least once in the topic: a container that dies between the two leaves rows of an attempt that the checkpoint log
never names. `grete.checkpoint.committed_reader` and `grete.spark.committed_rows` give each row once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from grete.checkpoint.output_commits import Attempt, LineageCommits
from grete.checkpoint.task_commit import TaskCommit
from grete.config.settings.spark import local_cores
from grete.container.assignment import Assignment
from grete.failpoints import failpoint
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.spark import kafka_sink
from grete.tasks.commit.base import BatchOutcome, CommitTarget
from grete.tasks.ranges import SourceOffsets

_runs = itertools.count(1)


def new_attempt(assignment: Assignment) -> Attempt:
    """The attempt of a container that starts now; later ones of this process are greater."""
    return Attempt(assignment.job.key, assignment.container_id, assignment.fence.epoch, next(_runs))


@dataclass(frozen=True, slots=True)
class KafkaOutput:
    """The topic a pipeline writes, and the connector's options for it. They hold secrets: not to be shown.

    `stamps`: whether its records say which batch they are of.
    """

    stream: SystemStream
    partitions: int
    settings: Mapping[str, str]
    stamps: bool = True

    def __repr__(self) -> str:
        return f"KafkaOutput({self.stream})"


class KafkaPipelineBatch:
    """Writes and commits the batches of one pipeline. A batch that is committed already is computed again, for the
    sake of Spark's state, and not written again.
    """

    def __init__(
        self,
        target: CommitTarget,
        attempt: Attempt,
        output_commits: LineageCommits,
        tasks: Mapping[TaskName, Sequence[SystemStreamPartition]],
        output: KafkaOutput,
        starting: Mapping[str, int],
    ) -> None:
        self._target = target
        self._attempt = attempt
        self._outputs = output_commits
        self._tasks = tasks
        self._output = output
        self.position = dict(starting)
        """The next offset to read of each SSP, as of the last batch that is done."""

    def run(self, batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
        """Compute the batch, write its rows, then commit the checkpoints of its end.

        Raises:
            Fenced, InDoubt: see TransactionalStore.commit; what was written is not committed then.
        """
        read = sum(max(0, offset - self.position.get(ssp, 0)) for ssp, offset in end.next_offsets.items())
        failpoint("batch.before-run")
        if batch_id <= self._outputs.last:
            kafka_sink.compute_only(batch)
            self.position = dict(end.next_offsets)
            return BatchOutcome()
        self._write(batch, batch_id)
        failpoint("batch.after-run")
        outputs = self._outputs.with_batch(batch_id, self._attempt)
        started_s = time.monotonic()
        self._target.commit(
            [],
            {task: self._task_commit(task, end, batch_id) for task in self._tasks},
            also=[outputs.entry(self._target.grouper)],
        )
        commit_s = time.monotonic() - started_s
        self._outputs = outputs
        self.position = dict(end.next_offsets)
        failpoint("batch.after-commit")
        return BatchOutcome(records=read, commit_s=commit_s)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        if self._output.stamps:
            is_shuffled = may_be_reordered(batch)
            runs_once = runs_tasks_once(batch.sparkSession.sparkContext.master)
            rows = batch.localCheckpoint(eager=False) if is_shuffled and not runs_once else batch
            # a lost shuffle file is recomputed, on local masters too, so rows may be renumbered
            once = runs_once and not is_shuffled
            written = kafka_sink.records(
                rows, batch_id, self._attempt, self._output.partitions, is_run_once=once
            )
        else:
            written = kafka_sink.plain_records(batch)
        kafka_sink.write(written, self._output.settings, self._output.stream.stream)

    def _task_commit(self, task: TaskName, end: SourceOffsets, batch_id: int) -> TaskCommit:
        return TaskCommit(
            # one before the next offset, be it a record or a transaction's marker: what Samza takes for processed
            offsets={ssp: str(end.next_offsets[str(ssp)] - 1) for ssp in self._tasks[task]},
            lineage=self._outputs.lineage,
            batch_id=batch_id,
            token=str(self._attempt),
        )


def runs_tasks_once(master: str) -> bool:
    """Whether Spark never repeats a failed task; local masters do not by default."""
    return local_cores(master) is not None and "," not in master


def may_be_reordered(batch: DataFrame) -> bool:
    """Whether a task that Spark runs twice may get its rows in another order the second time.

    `batch` is what Spark gives to `foreachBatch`. If so, the rows are kept before they are numbered, so that each has
    one number; what was not shuffled comes in the order of the source.
    """
    # a batch's own plan is an RDD, which says where it comes from; to plan it for that would take 20 ms of each batch
    return "ShuffledRowRDD" in batch._jdf.queryExecution().logical().rdd().toDebugString()
