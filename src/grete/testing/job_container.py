"""A container that a test holds: plans, runs and commits batches with the very code that a real one uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from grete.clock import Clock
from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.epochs import Epoch
from grete.container.local_shares import LocalShares
from grete.container.metrics import ContainerMetrics
from grete.container.start import prepare
from grete.keyed_log.base import KeyedLog
from grete.model.ids import TaskName
from grete.systems.admin import OffsetAdmin, PartitionOffsets
from grete.systems.base import System
from grete.tasks.commit.base import BatchOutcome


class BlockedEnds(OffsetAdmin):
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


class TestedContainer(Protocol):
    """A container as a job in a test runs it."""

    metrics: ContainerMetrics
    all_shut_down: bool

    @property
    def shut_down(self) -> list[TaskName]:
        """Tasks that asked to be shut down."""

    def run_batch(self, *, commit: bool) -> BatchOutcome | None:
        """Run the next batch; None when there is nothing to do."""

    def close(self) -> None:
        """End at a batch boundary."""

    def kill(self) -> None:
        """Give everything up as a killed process does."""


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
        others = {ssp.system: system for ssp in assignment.ssps}  # all are one here
        others.pop(assignment.settings.task.commit_system, None)
        started = prepare(assignment, system, self._store, clock, home, others=others)
        epoch = Epoch(started, clock, slots_at_most=1)
        self._shares = LocalShares(epoch, clock, ends=ends, commit_s=0.0)
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
            return BatchOutcome() if self._shares.process() else None
        for outcome in self._shares.step():
            self.metrics.add(outcome)
            self._shut_down |= outcome.shutdown_tasks
            self.all_shut_down = outcome.shutdown_all
            return outcome
        return None

    def close(self) -> None:
        """Let the tasks close."""
        self._shares.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def kill(self) -> None:
        """Give everything up as a killed process does: no task is closed."""
        self._shares.kill()
        self._shares.close()
        self._close_store()
