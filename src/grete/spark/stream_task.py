"""StreamTasks on Spark: each share of a batch is a Spark task.

Spark gets no rows and plans nothing: the driver hands out ranges, and workers read their records. There is no
streaming query between: a source of ranges took three Python processes and 2.5 s of a processor at each start, and
offset files say nothing that checkpoints do not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException

from grete.config.settings.spark import local_cores
from grete.container.batches import Batch
from grete.spark.failures import job_failed, jvm_ended
from grete.tasks.ranges import TaskGroup
from grete.tasks.results import TaskResult
from grete.tasks.share import ShareRunner, Shares, claims_in
from grete.tasks.spec import RunnerSpec

_log = logging.getLogger("grete.container")
_WARN_EVERY_S = 60.0
_IDLE_S = 20.0
"""Well below the minute after which Spark ends Python workers that are not used."""


class SparkEngine:
    """Runs shares as the tasks of Spark jobs. See `container.batches.Engine`. Used by one thread."""

    def __init__(self, context: SparkContext, *, has_windows: bool, idle_s: float = _IDLE_S) -> None:
        """`idle_s` is after how long without work its Python workers are given some."""
        self._context = context
        self._is_local = local_cores(self._context.master) is not None
        self.slots_at_most: int | None = self._context.defaultParallelism
        self._has_windows = has_windows
        self._idle_s = idle_s
        self._used_s = time.monotonic()
        self._holders: dict[int, str] = {}
        self._warned_s = float("-inf")

    def run(self, spec: RunnerSpec, batch: Batch, place: Path) -> list[TaskResult]:
        """See Engine. Spark repeats a share that failed as often as `spark.task.maxFailures` says.

        Raises:
            GreteError: a share failed, as its worker said.
            JobError: Spark failed, or its JVM is gone.
        """
        count = len(batch.groups)
        if not count:
            return []
        claims = claims_in(place) if self._is_local else None
        shares = Shares(batch.groups, batch.tick, dict(self._holders), claims)
        run = ShareRunner(spec, batch.plan, shares)

        def run_share(number: int, _: Iterable[int]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None, "Spark runs this on an executor"
            yield run(number, is_repeated=context.attemptNumber() > 0)

        done = self._run_job(count, run_share)
        self._note_holders(spec, {slot: worker for slot, worker, _ in done}, batch.groups)
        return [result for _, _, results in done for result in results]

    def keep_alive(self) -> None:
        """Give Spark a use for its Python workers, of every executor, when they have had none for a while.

        It ends all of an executor's workers when none was used for a minute, and with them the instances of
        StreamTasks, their open stores and their clients.

        Raises:
            JobError: Spark failed, or its JVM is gone.
        """
        process = getattr(self._context._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            raise jvm_ended(process.returncode)
        if time.monotonic() - self._used_s < self._idle_s:
            return
        count = 1 if self._is_local else self._context.defaultParallelism
        self._run_job(count, _nothing)

    def _run_job(self, count: int, work: Callable[[int, Iterable[int]], Iterator[Any]]) -> list[Any]:
        """A Spark job of so many tasks, each of which gets its number."""
        try:
            tasks = self._context.parallelize(range(count), count)
            done: list[Any] = tasks.mapPartitionsWithIndex(work).collect()
        except (Py4JError, PySparkException, OSError) as error:
            raise job_failed(self._context, error) from error
        self._used_s = time.monotonic()
        return done

    def _note_holders(
        self, spec: RunnerSpec, now: Mapping[int, str], groups: Mapping[int, TaskGroup]
    ) -> None:
        """Remember which worker has which share; warn when instances were left behind that may count for `window`."""
        moved = [slot for slot, worker in now.items() if self._holders.get(slot, worker) != worker]
        self._holders |= now
        if moved and self._has_windows and time.monotonic() - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = time.monotonic()
            tasks = [spec.tasks[index].name for slot in moved for index, _ in groups[slot]]
            _log.warning(
                "%d tasks (%s) go on as other instances, in another Python worker: what the class keeps in fields "
                "is not there; what window() has to know belongs into a store",
                *(len(tasks), ", ".join(tasks[:10])),
            )


def _nothing(number: int, _: Iterable[int]) -> Iterator[int]:
    return iter(())
