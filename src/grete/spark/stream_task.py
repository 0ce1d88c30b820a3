"""A micro-batch of StreamTasks on the driver: run the tasks, then commit what they did, unless executors have.

Spark decides when a batch runs, and up to where, in its own offset log; it hands over no rows. The driver reads the
batch's ends there and lets a Spark task run each share. Having the ranges come through a source would take a second
Python worker beside each that works.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from grete.config.settings.spark import local_cores
from grete.failpoints import failpoint
from grete.spark.offset_log import read_batch_end
from grete.tasks.commit.base import BatchCommits, BatchOutcome
from grete.tasks.ranges import SourceOffsets, TaskGroup
from grete.tasks.read_plan import SourceOptions
from grete.tasks.results import TaskResult
from grete.tasks.share import Places, ShareRunner, Shares, claims_in
from grete.tasks.spec import BatchPlan

_log = logging.getLogger("grete.container")
_TELL_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A container's inputs, and Spark's log of up to where batches read. `first` is where the lineage starts."""

    options: SourceOptions
    checkpoint: Path
    first: SourceOffsets

    def before(self, batch_id: int) -> SourceOffsets:
        """Where a batch starts: where the one before it ends.

        Raises:
            SparkLogUnreadable: Spark's log has no such batch.
        """
        if batch_id == 0:
            return self.first
        return read_batch_end(self.checkpoint, batch_id - 1, self.options.system)


class StreamTaskBatch:
    """Runs and commits the batches of one container. Called by one thread, one batch at a time."""

    def __init__(self, commits: BatchCommits, reading: Reading) -> None:
        self._commits = commits
        self._spec = commits.spec
        self._reading = reading
        self._holders: dict[int, str] = {}
        self._told_s = float("-inf")
        self._places = Places(reading.checkpoint.parent / "claims")

    def run(self, batch: DataFrame, batch_id: int, end: SourceOffsets) -> BatchOutcome:
        """Run the batch and commit it."""
        plan = self._commits.plan(batch_id)
        failpoint("batch.before-run")
        with self._places.of_a_batch() as place:
            results = self._run_tasks(batch.sparkSession, plan, end, Path(place))
            failpoint("batch.after-run")
            started_s = time.monotonic()
            outcome = self._commits.commit(results, batch_id)
            outcome.commit_s += time.monotonic() - started_s
        failpoint("batch.after-commit")
        return outcome

    def _run_tasks(
        self, spark: SparkSession, plan: BatchPlan, end: SourceOffsets, place: Path
    ) -> list[TaskResult]:
        """Run a Spark task for each share; returns the results of their StreamTasks."""
        context = spark.sparkContext
        start = self._reading.before(plan.batch_id)
        groups = self._reading.options.groups(start, end)
        if not groups:
            return []
        is_local = local_cores(context.master) is not None
        claims = claims_in(place) if is_local else None
        shares = Shares(groups, end.tick != start.tick, dict(self._holders), claims)
        run = ShareRunner(self._spec, plan, shares, str(place / "results"))
        count = len(groups)

        def run_share(number: int, _: Iterable[int]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None, "Spark runs this on an executor"
            yield run(number, is_repeated=context.attemptNumber() > 0)

        done = context.parallelize(range(count), count).mapPartitionsWithIndex(run_share).collect()
        self._note_holders({slot: worker for slot, worker, _ in done}, groups)
        return [result for _, _, results in done for result in results]

    def _note_holders(self, now: Mapping[int, str], groups: Mapping[int, TaskGroup]) -> None:
        """Remember which worker has which share; warn when instances were left behind that may count for `window`."""
        moved = [slot for slot, worker in now.items() if self._holders.get(slot, worker) != worker]
        self._holders |= now
        has_windows = self._reading.options.tick_ms > 0
        if moved and has_windows and time.monotonic() - self._told_s >= _TELL_EVERY_S:
            self._told_s = time.monotonic()
            tasks = [self._spec.tasks[index].name for slot in moved for index, _ in groups[slot]]
            _log.warning(
                "%d tasks (%s) go on as other instances, in another Python worker: what the class keeps in fields "
                "is not there; what window() has to know belongs into a store",
                *(len(tasks), ", ".join(tasks[:10])),
            )


def keep_workers(spark: SparkSession) -> None:
    """Give Spark a use for its Python workers, of every executor.

    It ends all of an executor's workers when none was used for a minute, and with them the instances of StreamTasks,
    their open stores and their clients.
    """
    context = spark.sparkContext
    count = 1 if local_cores(context.master) is not None else context.defaultParallelism
    context.parallelize(range(count), count).mapPartitions(_nothing).collect()


def _nothing(rows: Iterable[int]) -> Iterator[int]:
    return iter(())
