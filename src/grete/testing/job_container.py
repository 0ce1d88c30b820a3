"""A container without Spark: plans, runs and commits batches with the very code that a real one uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.clock import Clock
from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.housekeeping import housekeeping
from grete.container.specs import source_options
from grete.container.start import prepare
from grete.keyed_log.base import KeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.systems.admin import PartitionOffsets, Range
from grete.systems.base import System
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets, TaskGroup
from grete.tasks.read_plan import ReadPlan
from grete.tasks.results import TaskResult
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share import Places, Share, run_share
from grete.tasks.spec import BatchPlan


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


def run_shares(
    workers: TaskWorkers, plan: BatchPlan, groups: Mapping[int, TaskGroup], results: Path, *, tick: bool
) -> list[TaskResult]:
    """Run the shares of a batch as Spark tasks do, one after the other by one worker."""
    commits = workers.share_commits(str(results), len(groups))
    return [
        result
        for slot, group in groups.items()
        for result in run_share(workers, plan, Share(slot, group, tick), commits)
    ]


@dataclass(slots=True)
class _Batch:
    id: int
    start: SourceOffsets


class ContainerUnderTest:
    """One incarnation of one container. Opening it fences the one before, as starting a real one does.

    `opening` tells apart those that are opened under one epoch: batches of a lineage are numbered from zero, and one
    that its lineage has committed is not run again.
    """

    def __init__(
        self,
        assignment: Assignment,
        system: System,
        ends: BlockedEnds,
        clock: Clock,
        home: Path,
        *,
        opening: str = "",
        coordinator_log: KeyedLog | None = None,
    ) -> None:
        self.assignment = assignment
        self._store = checkpoint_store(assignment, clock, home, coordinator_log)
        started = prepare(assignment, system, self._store, clock, home)
        self.skipped = started.skipped
        self._commits = started.batch_commits(f"{assignment.container_id}-{assignment.epoch}{opening}")
        self._options = source_options(assignment, home, started.next_offsets, by_task=True)
        self._plan = ReadPlan(self._options, ends, clock)
        self._batch = _Batch(0, self._plan.initial())
        self._workers = TaskWorkers(self._commits.spec, clock=clock)
        self._tidy = housekeeping(assignment, system)
        self._places = Places(assignment.state_directory(home) / "results")
        self._shut_down: set[int] = set()
        self.all_shut_down = False

    @property
    def shut_down(self) -> list[TaskName]:
        """Tasks that asked to be shut down."""
        return [self.assignment.tasks[index].name for index in sorted(self._shut_down)]

    @property
    def next_offsets(self) -> Mapping[str, int]:
        """The next offset to read of each SSP, by its text, after the last committed batch."""
        return self._batch.start.next_offsets

    def stop_at_the_end(self) -> None:
        """Nothing is read that is not there now."""
        self._plan.stop_at_the_end()

    def run_batch(self, *, commit: bool) -> BatchOutcome | None:
        """Run the next batch; None when there is nothing to do.

        Raises:
            ProcessingError: a message cannot be processed; nothing of the batch was committed.
            Fenced: a later incarnation was opened.
        """
        if self.all_shut_down:
            return None
        start = self._batch.start
        end = self._plan.next(start, rows=self._options.max_records)
        if end == start:
            return None
        plan, groups = self._commits.plan(self._batch.id), self._options.groups(start, end)
        with self._places.of_a_batch() as place:
            results = run_shares(self._workers, plan, groups, Path(place), tick=end.tick != start.tick)
            if not commit:
                return BatchOutcome()
            outcome = self._commits.commit(results, self._batch.id)
        self._tidy()
        self._batch = _Batch(self._batch.id + 1, end)
        self._shut_down |= outcome.shutdown_tasks
        self.all_shut_down = outcome.shutdown_all
        return outcome

    def close(self) -> None:
        """Let the tasks close."""
        self._workers.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def kill(self) -> None:
        """Give everything up as a killed process does: no task is closed."""
        for index in range(len(self.assignment.tasks)):
            self._workers.drop(index)
        self._workers.close()
        self._close_store()
