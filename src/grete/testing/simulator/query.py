"""Stands for Spark in the simulated world: batches are planned, run and done, and each of these is on disk.

Spark writes the offsets of a batch before it runs, and that it is done afterwards; a batch that was planned and not
done is run again when the lineage is continued. Everything else here is the product's own code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.control import Ended
from grete.container.specs import source_options
from grete.container.start import steps
from grete.spark.lineage import Continue, LineageInfo, decide_lineage
from grete.spark.lineage_files import LineageDirectory
from grete.spark.offset_log import SparkProgress, read_batch_end
from grete.systems.local.system import LocalSystem
from grete.tasks.commit.base import BatchCommits
from grete.tasks.ranges import SourceOffsets
from grete.tasks.read_plan import ReadPlan, SourceOptions
from grete.tasks.runtime import TaskWorkers
from grete.testing.job_container import run_shares
from grete.testing.simulator.scheduler import Sleep

if TYPE_CHECKING:
    from grete.testing.simulator.container import ContainerProgram

_TRIGGER_S = 4.0
_ROWS = 12


class QueryRun:
    """One query of one container: between two barriers, or from start to end."""

    def __init__(self, container: ContainerProgram, assignment: Assignment) -> None:
        self._container = container
        self._assignment = assignment
        self._world = container.world
        self._system = container.system
        self._clock = container.process.clock
        self._lineages: LineageDirectory | None = None
        self._workers: TaskWorkers | None = None

    def close(self) -> None:
        """Give files and locks back, as the end of a process does."""
        if self._workers is not None:
            for worker in list(self._workers._open.values()):
                worker.instance = None
            self._workers.close()
            self._workers = None
        if self._lineages is not None:
            self._lineages.close()
            self._lineages = None

    def run(self) -> Any:
        """Run batches until interrupted or drained; returns which."""
        container, assignment = self._container, self._assignment
        self._system.tasks = [task.name for task in assignment.tasks if task.pending.startpoints]
        started = yield from self._start()
        lineage = self._choose_lineage(started.next_offsets)
        yield Sleep()
        batches = started.batch_commits(lineage.id)
        options = source_options(assignment, container.home, lineage.starting_offsets, by_task=True)
        self._workers = TaskWorkers(batches.spec, _SharedSystem(self._world.system), self._clock)
        return (yield from self._batches(lineage, batches, options))

    def _start(self) -> Any:
        """The product's start, with the world going on between its steps."""
        home, store = (
            self._container.home,
            checkpoint_store(self._assignment, self._clock, self._container.home),
        )
        remaining = steps(self._assignment, self._system, store, self._clock, home)
        next(remaining)
        yield Sleep()
        self._note_fence()
        while True:
            try:
                next(remaining)
            except StopIteration as end:
                return end.value
            yield Sleep()

    def _note_fence(self) -> None:
        """Tell the ledger who has the tasks now, unless a later incarnation has fenced this one off already."""
        if not self._world.is_fenced(self._container):
            for task in self._assignment.tasks:
                self._world.ledger.takes(task.name, self._container.incarnation)

    def _batches(self, lineage: LineageInfo, batches: BatchCommits, options: SourceOptions) -> Any:
        assert self._lineages is not None
        log = SparkLog(self._lineages.spark_checkpoint(lineage))
        plan = ReadPlan(options, self._system, self._clock)
        if self._assignment.until_drained:
            plan.stop_at_the_end()
        progress = self._lineages.progress(lineage)
        assert isinstance(progress, SparkProgress), progress
        number = progress.committed + 1
        start = plan.initial()
        if progress.committed_end is not None:
            start = progress.committed_end
        planned = progress.planned > progress.committed
        while not self._container.control.is_set():
            if not planned:
                end = plan.next(start, rows=_ROWS)
                if end == start:
                    if self._assignment.until_drained:
                        return Ended.DRAINED
                    yield Sleep(_TRIGGER_S)
                    continue
                log.plan(number, end)
                yield Sleep()
                if self._container.control.is_set():
                    return Ended.INTERRUPTED
            end = log.end(number)
            yield from self._batch(batches, number, options, start, end)
            log.done(number)
            number, start, planned = number + 1, end, False
            yield Sleep(_TRIGGER_S)
        return Ended.INTERRUPTED

    def _batch(
        self,
        batches: BatchCommits,
        number: int,
        options: SourceOptions,
        start: SourceOffsets,
        end: SourceOffsets,
    ) -> Any:
        assert self._workers is not None
        folder = self._assignment.state_directory(self._container.home) / "results"
        results = run_shares(
            self._workers, batches.plan(number), options.groups(start, end), folder, tick=False
        )
        yield Sleep(0.5)
        self._system.tasks = [batches.spec.tasks[result.report.task].name for result in results]
        outcome = batches.commit(results, number)
        self._container.course.on_batch(number, outcome)
        yield Sleep()

    def _choose_lineage(self, wanted: dict[str, int]) -> LineageInfo:
        assignment = self._assignment
        self._lineages = LineageDirectory(assignment.state_directory(self._container.home) / "lineages")
        plan = ";".join(f"{task.name}={','.join(map(str, task.ssps))}" for task in assignment.tasks)
        current = self._lineages.current()
        progress: SparkProgress | str | None = None
        if current is not None:
            locked = self._lineages.lock(current)
            progress = self._lineages.progress(current) if locked else "another process still runs it"
        decision = decide_lineage(current, progress, wanted, plan)
        if isinstance(decision, Continue):
            return decision.lineage
        return self._lineages.start(wanted, plan)


class _SharedSystem(LocalSystem):
    """The world's own open file: another connection for each container costs a millisecond and shows nothing more."""

    def __init__(self, system: LocalSystem) -> None:
        self.__dict__.update(system.__dict__)

    def close(self) -> None:
        """The file belongs to the world."""


class SparkLog:
    """Spark's offset log and commit log of one checkpoint location, in its format."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(exist_ok=True)

    def plan(self, batch: int, end: SourceOffsets) -> None:
        """The batch will read up to here."""
        text = b"v1\n{}\n" + orjson.dumps(end.to_document())
        (self._checkpoint / "offsets" / str(batch)).write_bytes(text)

    def done(self, batch: int) -> None:
        """The batch is done."""
        (self._checkpoint / "commits" / str(batch)).write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')

    def end(self, batch: int) -> SourceOffsets:
        """Up to where a planned batch reads."""
        return read_batch_end(self._checkpoint, batch, "")
