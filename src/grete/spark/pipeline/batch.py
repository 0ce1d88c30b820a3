"""A micro-batch of a DataFramePipeline: its rows go to its sinks, then its checkpoints are written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from pyspark.sql import DataFrame

from grete.api import Batch
from grete.checkpoint.task_commit import TaskCommit
from grete.failpoints import failpoint
from grete.model.ids import SystemStreamPartition, TaskName
from grete.spark.pipeline.outputs import Shared
from grete.spark.sinks.base import Sink, compute_only
from grete.spark.sinks.kafka import OutputStamps
from grete.spark.sinks.own import OwnSink
from grete.systems.commit_group import SegmentWrite
from grete.tasks.commit.base import BatchOutcome, CommitTarget
from grete.tasks.ranges import SourceOffsets


class PipelineBatches:
    """Writes and commits the batches of one lineage. A batch that is committed already is computed again, for the
    sake of Spark's state, and not written again.

    The checkpoint is written after every sink has the batch's rows, or together with them.
    """

    def __init__(
        self,
        target: CommitTarget,
        lineage: str,
        tasks: Mapping[TaskName, Sequence[SystemStreamPartition]],
        commits: Mapping[TaskName, TaskCommit],
        starting: Mapping[str, int],
        shared: Shared,
        sinks: Mapping[str, Sink],
        stamps: OutputStamps | None,
        dead_letters: str | None = None,
        *,
        check_inputs: Callable[[], None] = lambda: None,
        has_foreign_sources: bool = False,
    ) -> None:
        """`dead_letters` is the output that is the stream of dead letters. `has_foreign_sources`: see TaskCommit.

        `check_inputs` is called when a batch has read what it reads, before it is committed.
        """
        self._target = target
        self._lineage = lineage
        self._tasks = tasks
        self._commits = dict(commits)
        self._shared = shared
        self._sinks = sinks
        self._stamps = stamps
        self._dead_letters = dead_letters
        self._check_inputs = check_inputs
        self._has_foreign_sources = has_foreign_sources
        self.position = dict(starting)
        """The next offset to read of each SSP, as of the last batch that is done."""

    def run(self, batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
        """Compute the batch, write its rows, and commit the checkpoints of its end.

        Raises:
            Fenced, InDoubt: see TransactionalStore.commit; what was written is not committed then.
            GreteError: a sink's, see `Sink.write`; or that of `check_inputs`.
        """
        read = sum(max(0, offset - self.position.get(ssp, 0)) for ssp, offset in end.next_offsets.items())
        failpoint("batch.before-run")
        end = SourceOffsets(
            {**self.position, **end.next_offsets}
        )  # planned before the input grew, it lacks some
        if self._is_committed(batch_id):
            compute_only(batch)
            self.position |= end.next_offsets
            return BatchOutcome()
        segments, letters = self._write(batch, Batch(self._lineage, batch_id, self._target.fences[0].epoch))
        failpoint("batch.after-run")
        self._check_inputs()
        commit_s = self._commit(segments, batch_id, end)
        self.position |= end.next_offsets
        failpoint("batch.after-commit")
        return BatchOutcome(records=read, commit_s=commit_s, dead_letters=letters)

    def _write(self, batch: DataFrame, id: Batch) -> tuple[Iterable[SegmentWrite], int]:
        """Write the batch's rows; returns what is still to be committed of them, and how many are dead letters."""
        is_kept = len(self._sinks) > 1 or any(isinstance(sink, OwnSink) for sink in self._sinks.values())
        rows = batch.persist() if is_kept else batch
        try:
            outputs = self._shared.of_batch(rows, list(self._sinks))
            letters = 0 if self._dead_letters is None else outputs[self._dead_letters].count()
            given = [
                sink.write(outputs[name], id)
                for name, sink in self._sinks.items()
                if letters or name != self._dead_letters
            ]
        finally:
            if is_kept:
                rows.unpersist()
        return chain.from_iterable(given), letters

    def _commit(self, segments: Iterable[SegmentWrite], batch_id: int, end: SourceOffsets) -> float:
        commits = {task: self._task_commit(task, end, batch_id) for task in self._tasks}
        stamps, started_s = self._stamps, time.monotonic()
        also = [] if stamps is None else [stamps.entry(batch_id, self._target.grouper)]
        self._target.commit(segments, commits, also=also)
        if stamps is not None:
            stamps.committed(batch_id)
        self._commits.update(commits)
        return time.monotonic() - started_s

    def _is_committed(self, batch_id: int) -> bool:
        """Whether this batch of this lineage is in our checkpoints: of one task, as of all that were there then."""
        commits = [self._commits[task] for task in self._tasks if task in self._commits]
        return any(commit.lineage == self._lineage and commit.batch_id >= batch_id for commit in commits)

    def _task_commit(self, task: TaskName, end: SourceOffsets, batch_id: int) -> TaskCommit:
        return TaskCommit(
            # one before the next offset, be it a record, a transaction's marker, or -1 where nothing is read: what
            # Samza takes for processed, and without it the next start would go by the default
            offsets={ssp: str(end.next_offsets[str(ssp)] - 1) for ssp in self._tasks[task]},
            lineage=self._lineage,
            batch_id=batch_id,
            token="" if self._stamps is None else str(self._stamps.attempt),
            store_positions={},
            has_foreign_sources=self._has_foreign_sources,
        )
