"""A container's batches of StreamTasks, one after the other from its checkpoints on, whatever engine runs them.

A batch is planned from what is committed, its shares are run by an `Engine`, and it is committed before the next one
is planned. No engine remembers where a batch ended: a container that starts again plans again from checkpoints.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grete.clock import Clock
from grete.config.settings import Settings
from grete.container.control import Ended, Interruption
from grete.container.housekeeping import housekeeping
from grete.container.offset_publisher import OffsetPublisher
from grete.container.run_lock import at_work_in
from grete.container.specs import source_options
from grete.container.start import Started
from grete.failpoints import failpoint
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.ranges import SourceOffsets, TaskGroup
from grete.tasks.read_plan import ReadPlan, StreamEnds
from grete.tasks.results import TaskResult
from grete.tasks.share import Places
from grete.tasks.spec import BatchPlan, RunnerSpec

_log = logging.getLogger("grete.container")
OnBatch = Callable[[int, BatchOutcome], None]
"""Called after each commit, with the batch's number."""
_PAUSE_S = (0.005, 0.05)
"""Between looks for input when there is none: a record waits 5 ms when others came before, 50 ms at most."""
_LOOKS_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Batch:
    """The input of a batch, as shares by slot, and the state that it builds on."""

    plan: BatchPlan
    groups: Mapping[int, TaskGroup]
    start: SourceOffsets
    end: SourceOffsets

    @property
    def tick(self) -> bool:
        """Whether `StreamTask.window` is due."""
        return self.end.tick != self.start.tick


class Engine(Protocol):
    """Runs the shares of batches."""

    slots_at_most: int | None
    """The shares that it can run side by side, where each commits on its own; None is no limit."""

    def run(self, spec: RunnerSpec, batch: Batch, place: Path) -> list[TaskResult]:
        """Run each share of a batch once; `place` is a folder of this run.

        Raises:
            GreteError: a share failed; nothing of it was committed, of others perhaps something.
        """

    def keep_alive(self) -> None:
        """Called between looks while there is no input: instances of tasks live as long as their container.

        Raises:
            JobError: the engine is gone.
        """


class Batches:
    """Plans and commits the batches of one start of a container. Used by one thread."""

    def __init__(
        self,
        started: Started,
        clock: Clock,
        *,
        ends: StreamEnds | None = None,
        slots_at_most: int | None = None,
    ) -> None:
        """`ends` is where the inputs end, when that is not what the system says.

        Raises:
            ConfigError, StreamNotFound: see `Started.batch_commits`.
        """
        assignment, lineage = started.assignment, uuid.uuid4().hex
        self._commits = started.batch_commits(lineage)
        self._options = source_options(
            assignment, started.home, started.next_offsets, by_task=True, slots_at_most=slots_at_most
        )
        self._reading = ReadPlan(self._options, ends or started.system, clock)
        self._number = self._commits.next_batch
        self._position = self._reading.initial()
        self._tidy = housekeeping(assignment, started.system, clock)
        self._places = Places(at_work_in(assignment.state_directory(started.home)) / lineage)

    @property
    def number(self) -> int:
        """The number of the next batch."""
        return self._number

    @property
    def spec(self) -> RunnerSpec:
        """The container's tasks, for those who run them."""
        return self._commits.spec

    @property
    def next_offsets(self) -> Mapping[str, int]:
        """The next offset to read of each SSP, by its text, after the last committed batch."""
        return self._position.next_offsets

    def stop_at_the_end(self) -> None:
        """Nothing is read that is not there now.

        Raises:
            StreamUnreachable: where a partition ends is not known, because no broker answers.
        """
        self._reading.stop_at_the_end()

    def place(self) -> AbstractContextManager[str]:
        """A folder for one run of a batch."""
        return self._places.of_a_batch()

    def next(self, *, rows: int | None = None) -> Batch | None:
        """The next batch, of at most so many records where the settings allow more; None when there is no input.

        Raises:
            StreamUnreachable: see `ReadPlan.next`.
        """
        start = self._position
        most = self._options.max_records
        end = self._reading.next(start, rows=most if rows is None else min(rows, most))
        if end == start:
            return None
        return Batch(self._commits.plan(self._number), self._options.groups(start, end), start, end)

    def commit(self, batch: Batch, results: list[TaskResult]) -> BatchOutcome:
        """Commit a batch that has run; durable on return, and the next one begins where it ended.

        Raises:
            Fenced, InDoubt, StorageFull, LogCorrupted: see `BatchCommits.commit`.
        """
        started_s = time.monotonic()
        outcome = self._commits.commit(results, batch.plan.batch_id)
        outcome.commit_s += time.monotonic() - started_s
        self._number, self._position = self._number + 1, batch.end
        return outcome

    def tidy(self) -> None:
        """Do what upkeep is due."""
        self._tidy()

    def run_next(self, engine: Engine) -> tuple[int, BatchOutcome] | None:
        """Plan, run and commit a batch; None when there is no input.

        Raises:
            GreteError: see `next`, `Engine.run` and `commit`; the container has to start again.
        """
        batch = self.next()
        if batch is None:
            return None
        failpoint("batch.before-run")
        with self.place() as place:
            results = engine.run(self.spec, batch, Path(place))
            failpoint("batch.after-run")
            outcome = self.commit(batch, results)
        failpoint("batch.after-commit")
        return batch.plan.batch_id, outcome


class BatchLoop:
    """Runs batches until drained, interrupted, or shut down by a task."""

    def __init__(
        self, started: Started, engine: Engine, control: Interruption, clock: Clock, on_batch: OnBatch
    ) -> None:
        """Raises ConfigError and StreamNotFound: see `Batches`."""
        self._batches = Batches(started, clock, slots_at_most=engine.slots_at_most)
        self._until_drained = started.assignment.until_drained
        self._interval_s = Settings.of(started.assignment.config).task.trigger_interval_ms / 1000
        self._engine = engine
        self._control = control
        self._clock = clock
        self._on_batch = on_batch
        self._pause_s = _PAUSE_S[0]

    def run(self, publisher: OffsetPublisher | None) -> Ended:
        """Run; `publisher` gets every commit.

        Raises:
            GreteError: see `Batches.run_next`.
        """
        _log.info("going on from checkpoints with batch %d", self._batches.number)
        if self._until_drained:
            self._batches.stop_at_the_end()
        while not self._control.is_set():
            began_s = self._clock.monotonic_s()
            ran = self._batches.run_next(self._engine)
            if ran is None:
                if self._until_drained:
                    return Ended.DRAINED
                self._idle()
                continue
            number, outcome = ran
            if publisher is not None:
                publisher.publish(self._batches.next_offsets, outcome.shutdown_tasks)
            self._batches.tidy()
            self._on_batch(number, outcome)
            if outcome.shutdown_all:
                return Ended.SHUTDOWN
            self._pause_s = _PAUSE_S[0]
            if not self._until_drained:
                self._wait_until(began_s + self._interval_s)
        return Ended.INTERRUPTED

    def _idle(self) -> None:
        self._engine.keep_alive()
        self._control.wait(self._pause_s)
        self._pause_s = min(1.5 * self._pause_s, _PAUSE_S[1])

    def _wait_until(self, due_s: float) -> None:
        while not self._control.is_set() and (left_s := due_s - self._clock.monotonic_s()) > 0:
            self._control.wait(min(left_s, _LOOKS_EVERY_S))
