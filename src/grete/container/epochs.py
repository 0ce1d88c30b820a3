"""The epochs of a container of StreamTasks: the spans for which its shares run, whatever engine runs them.

A share polls, processes and commits by itself (`tasks.share_loop`). The container says with what each begins, takes
note of what is committed, and lets all of them end when something changes. No engine remembers where a share ended: a
container that starts again plans again from checkpoints.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from grete.clock import Clock
from grete.container.control import Ended, Interruption
from grete.container.housekeeping import housekeeping
from grete.container.offset_publisher import OffsetPublishers
from grete.container.process_state import EndedEpoch, KnownCommits, ProcessState
from grete.container.specs import added_partitions, slots_of, source_options
from grete.container.start import Started
from grete.errors import Fenced, GreteError, MayStillCommit
from grete.failpoints import failpoint
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.shares import Committed, ShareStart
from grete.tasks.spec import RunnerSpec

_log = logging.getLogger("grete.container")
OnBatch = Callable[[int, BatchOutcome], None]
"""Called after commits, with the number of the last."""


class Engine(Protocol):
    """Runs the shares of epochs."""

    slots_at_most: int | None
    """The shares that it can run side by side; None is no limit."""

    def run(self, epoch: Epoch, control: Interruption) -> Ended:
        """Run every share of the epoch until all are drained, a task ends the container, or `control` is set.

        No share works any more on return, unless its process was lost: what that may do yet is refused.

        Raises:
            GreteError: a share failed; what it had not committed is lost, others have committed what they had.
        """


class Epoch:
    """The state of an epoch as its container knows it, with which shares begin. Safe for several threads."""

    def __init__(
        self,
        started: Started,
        clock: Clock,
        *,
        slots_at_most: int | None = None,
        publishers: OffsetPublishers | None = None,
        on_batch: OnBatch = lambda number, outcome: None,
    ) -> None:
        """Raises ConfigError and StreamNotFound: see `Started.committed_tasks`."""
        assignment = started.assignment
        self.lineage = uuid.uuid4().hex
        self.name = f"{assignment.job} container {assignment.container_id}"
        self._tasks = started.committed_tasks(self.lineage)
        self._batch = self._tasks.next_batch
        options = source_options(
            assignment, started.home, started.next_offsets, by_task=True, slots_at_most=slots_at_most
        )
        self._options = options
        self._starting = dict(started.next_offsets)
        self._started = started
        self._slots = slots_of(self.spec, options.partitions_at_most, self._origins(started))
        self._positions = {slot: self._starting_of(slot) for slot in self._slots}
        self._log_ends = dict.fromkeys(self._slots, self.spec.commit.log_end)
        self._until_drained = assignment.until_drained
        self._tidy = housekeeping(assignment, started.system, [assignment.fence, started.epoch], clock)
        self._publishers = publishers if publishers is not None and publishers.of_systems else None
        self._on_batch = on_batch
        self._rewound_ms = started.rewound_ms
        self._lock = threading.Lock()
        self._at_work = 0
        self.shuts_down = False
        """Whether a task has asked for the end of the container."""

    @property
    def spec(self) -> RunnerSpec:
        """The container's tasks, for those who run them."""
        return self._tasks.spec

    @property
    def slots(self) -> list[int]:
        """The numbers of the shares."""
        return sorted(self._slots)

    @property
    def tasks_of_slots(self) -> Mapping[int, Sequence[int]]:
        """The tasks of each share, by their index."""
        return self._slots

    @property
    def next_offsets(self) -> dict[str, int]:
        """The next offset to read of each SSP, by its text, as far as it is known here.

        Of a broadcast one, which each share reads at its pace, the lowest.
        """
        found: dict[str, int] = {}
        for positions in self._positions.values():
            for ssp, offset in positions.items():
                found[ssp] = min(offset, found.get(ssp, offset))
        return found

    @property
    def known(self) -> KnownCommits:
        """What is committed of the container's tasks, as far as it was reported."""
        tasks = frozenset(task.name for task in self.spec.tasks)
        commits = {**self._started.commits, **self._tasks.taken}
        return KnownCommits(tasks, commits, max(self._log_ends.values(), default=self._started.log_end))

    def _starting_of(self, slot: int) -> dict[str, int]:
        spec = self.spec
        ssps = {str(spec.ssps[index]) for task in self._slots[slot] for index in spec.tasks[task].ssps}
        return {ssp: self._starting[ssp] for ssp in sorted(ssps)}

    def _origins(self, started: Started) -> dict[int, int]:
        """The task that has the records which the keys of a task's added partition left elsewhere, unread so far."""
        spec = self.spec
        readers = {spec.ssps[index]: task.index for task in spec.tasks for index in task.ssps}
        found: dict[int, int] = {}
        added = (
            one
            for name, system in started.systems.items()
            for one in added_partitions(system, [ssp for ssp in spec.ssps if ssp.system == name])
        )
        for ssp, before, upcoming in added:
            task, other = readers[ssp], readers.get(before)
            if other is not None and other < task and self._starting[str(before)] < upcoming:
                found[task] = other
        return found

    def start_of(self, slot: int) -> ShareStart:
        """The state with which the share of a slot begins now; it goes on from `starting` and the progress."""
        tasks, starting = self._slots[slot], self._starting_of(slot)
        with self._lock:
            return ShareStart(
                self.lineage,
                slot,
                tasks,
                {task: self._tasks.progress[task] for task in tasks},
                starting,
                self._batch,
                self._log_ends[slot],
                frozenset(self._tasks.shut_down),
                until_drained=self._until_drained,
                bootstrap=self._options.bootstrap,
                later={ssp: lower for ssp, lower in self._options.later.items() if ssp in starting},
            )

    @property
    def has_ended_well(self) -> bool:
        """Whether every share that began has said that it ends, so that nothing of the epoch is at work."""
        return self._at_work == 0

    def end(self) -> EndedEpoch | None:
        """Nothing of it commits on return. When every share has said so itself, what the next epoch goes on from.

        Spark takes an executor for lost that stands still, and ends the job without it. Once the container has ended
        as well others may have its tasks, and nobody fences it off: its end says that there is no need.

        Raises:
            Fenced: another incarnation has taken over.
            MayStillCommit: the system does not answer.
        """
        if self.has_ended_well:
            return EndedEpoch(self._started.epoch, self.known)
        try:
            self._started.system.begin_epoch(self._started.assignment.fence)
        except Fenced:
            raise
        except GreteError as error:
            raise MayStillCommit(f"a share of {self.name} may still commit: {error}") from error
        return None

    @contextmanager
    def ending(self, kept: ProcessState, control: Interruption) -> Iterator[None]:
        """Run it within: `kept` gets it when every share has said that it is at its end.

        When it fails and the container is to end or to pause, nothing of it commits either.

        Raises:
            Fenced, MayStillCommit: see `end`.
        """
        try:
            yield
        except GreteError:
            if control.is_set():
                self.end()
            raise
        if (known := self.end()) is not None:
            kept.keep(self._started.assignment.fence, known)

    def began(self) -> None:
        """A share has begun, or another attempt at one."""
        self._at_work += 1

    def ended(self) -> None:
        """A share that had begun has ended without an error, and commits nothing more."""
        self._at_work -= 1

    def committed(self, made: Committed) -> BatchOutcome:
        """Take note of commits of a share, and do what upkeep is due.

        Raises:
            GreteError: see `CommitTarget.copy`, `System.housekeeping`: the container has to start again.
        """
        failpoint("epoch.reported")
        with self._lock:
            outcome = self._tasks.take(made.reports, made.batch_id)
            self._batch = max(self._batch, made.batch_id + 1)
            self._positions[made.slot].update(made.next_offsets)
            self._log_ends[made.slot] = max(
                [self._log_ends[made.slot], *(report.committed_at for report in made.reports)]
            )
        outcome.commits, outcome.cpu_s, outcome.traced = made.commits, made.cpu_s, made.traced
        outcome.rewound_ms, self._rewound_ms = self._rewound_ms, None
        failpoint("epoch.noted")
        if self._publishers is not None:
            self._publishers.publish(self.next_offsets, outcome.shutdown_tasks)
        self._tidy()
        self._on_batch(made.batch_id, outcome)
        self.shuts_down = self.shuts_down or outcome.shutdown_all
        return outcome


def run_epoch(
    started: Started,
    engine: Engine,
    control: Interruption,
    clock: Clock,
    on_batch: OnBatch,
    publishers: OffsetPublishers,
    kept: ProcessState,
) -> Ended:
    """Run one epoch to its end; for `kept` see `Epoch.ending`.

    Raises:
        GreteError: see `Epoch`, `Epoch.end` and `Engine.run`. Something of it may commit until the next epoch begins,
            unless the container is to end or to pause.
    """
    epoch = Epoch(
        started, clock, slots_at_most=engine.slots_at_most, publishers=publishers, on_batch=on_batch
    )
    _log.info(
        "going on from checkpoints with batch %d, %d shares", epoch.start_of(0).next_batch, len(epoch.slots)
    )
    with epoch.ending(kept, control):
        return engine.run(epoch, control)
