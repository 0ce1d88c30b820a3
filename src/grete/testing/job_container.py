"""A container without Spark: plans, runs and commits batches with the very code that a real one uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grete.clock import Clock
from grete.container.assignment import Assignment
from grete.container.batches import Batch, Batches
from grete.container.checkpoints import checkpoint_store
from grete.container.metrics import ContainerMetrics
from grete.container.start import prepare
from grete.keyed_log.base import KeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.systems.admin import PartitionOffsets, Range
from grete.systems.base import System
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.results import TaskResult
from grete.tasks.runner import TaskRun
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share import Share, run_share
from grete.tasks.spec import RunnerSpec


class BlockedEnds:
    """Where streams end, as the job sees them: a blocked partition ends where it ended when it was blocked."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._blocked: dict[tuple[str, int], PartitionOffsets] = {}

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """See SystemAdmin."""
        return {
            partition: self._blocked.get((stream, partition), offsets)
            for partition, offsets in self._system.offsets(stream).items()
        }

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        """See SystemAdmin."""
        return {
            partition: self._blocked.get((stream, partition), offsets)
            for partition, offsets in self._system.reachable_offsets(stream).items()
        }

    def sizes(self, ranges: Mapping[SystemStreamPartition, Range]) -> Mapping[SystemStreamPartition, int]:
        """See SystemAdmin."""
        return self._system.sizes(ranges)

    def end_within(self, ssp: SystemStreamPartition, offsets: Range, size: int) -> int:
        """See SystemAdmin."""
        return self._system.end_within(ssp, offsets, size)

    def block(self, stream: str, partition: int | None) -> None:
        """Let the job see nothing that arrives from now on; None is every partition."""
        for number, offsets in self._system.offsets(stream).items():
            if partition in (None, number):
                self._blocked.setdefault((stream, number), offsets)

    def unblock(self, stream: str, partition: int | None) -> None:
        """Let the job see everything again."""
        self._blocked = {
            key: offsets
            for key, offsets in self._blocked.items()
            if not (key[0] == stream and partition in (None, key[1]))
        }


class LocalEngine:
    """Runs shares as Spark tasks do, one after the other in this process. See `container.batches.Engine`."""

    slots_at_most: int | None = 1

    def __init__(self, clock: Clock, system: System | None = None) -> None:
        """The tasks use `system`, which is closed with them; by default they open the container's."""
        self._clock = clock
        self._system = system
        self._workers: TaskWorkers | None = None

    def run(self, spec: RunnerSpec, batch: Batch, place: Path) -> list[TaskResult]:
        """See Engine."""
        return [result for slot in batch.groups for result in self.run_slot(spec, batch, slot)]

    def run_slot(self, spec: RunnerSpec, batch: Batch, slot: int) -> list[TaskResult]:
        """Run one share."""
        return run_share(self._opened(spec), batch.plan, Share(slot, batch.groups[slot], batch.tick))

    def process(self, spec: RunnerSpec, batch: Batch) -> None:
        """Run the tasks of a batch and commit nothing, as when the process dies in between."""
        workers = self._opened(spec)
        for index, ranges in (one for group in batch.groups.values() for one in group):
            TaskRun(workers.worker(index), batch.plan.progress[index], spec).process(ranges, tick=batch.tick)
            workers.drop(index)

    def _opened(self, spec: RunnerSpec) -> TaskWorkers:
        if self._workers is None or self._workers.spec.incarnation != spec.incarnation:
            self.close()
            self._workers = TaskWorkers(spec, self._system, self._clock)
        return self._workers

    def keep_alive(self) -> None:
        """See Engine: this process lives as long as the container."""

    def close(self) -> None:
        """Let the tasks close."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()

    def kill(self) -> None:
        """Give everything up as a killed process does: no task is closed."""
        if self._workers is not None:
            for index in range(len(self._workers.spec.tasks)):
                self._workers.drop(index)
        self.close()


class ContainerUnderTest:
    """One incarnation of one container. Opening it fences the one before, as starting a real one does."""

    def __init__(
        self,
        assignment: Assignment,
        system: System,
        ends: BlockedEnds,
        clock: Clock,
        home: Path,
        *,
        coordinator_log: KeyedLog | None = None,
    ) -> None:
        self.assignment = assignment
        self._store = checkpoint_store(assignment, clock, home, coordinator_log)
        started = prepare(assignment, system, self._store, clock, home)
        self._batches = Batches(started, clock, ends=ends, slots_at_most=1)
        self._engine = LocalEngine(clock)
        self._shut_down: set[int] = set()
        self.metrics = ContainerMetrics(assignment.container_id, clock)
        self.all_shut_down = False

    @property
    def shut_down(self) -> list[TaskName]:
        """Tasks that asked to be shut down."""
        return [self.assignment.tasks[index].name for index in sorted(self._shut_down)]

    def run_batch(self, *, commit: bool) -> BatchOutcome | None:
        """Run the next batch; None when there is nothing to do.

        Raises:
            ProcessingError: a message cannot be processed; nothing of the batch was committed.
            Fenced: a later incarnation was opened.
        """
        if self.all_shut_down:
            return None
        if not commit:
            return self._run_uncommitted()
        ran = self._batches.run_next(self._engine)
        if ran is None:
            return None
        _, outcome = ran
        self._batches.tidy()
        self.metrics.add(outcome)
        self._shut_down |= outcome.shutdown_tasks
        self.all_shut_down = outcome.shutdown_all
        return outcome

    def _run_uncommitted(self) -> BatchOutcome | None:
        batch = self._batches.next()
        if batch is None:
            return None
        self._engine.process(self._batches.spec, batch)
        return BatchOutcome()

    def close(self) -> None:
        """Let the tasks close."""
        self._engine.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def kill(self) -> None:
        """Give everything up as a killed process does: no task is closed."""
        self._engine.kill()
        self._close_store()
