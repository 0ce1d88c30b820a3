"""A container's life from its first assignment to its end, without threads, HTTP and clocks.

`ContainerLifecycle.steps` yields the next step, and is sent its answer, or thrown its error. The main loop takes
the steps with an HTTP client of the coordinator and an engine; the simulator takes them in its world.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from grete.config.choices import LostOffsets
from grete.container.assignment import Assignment
from grete.container.control import Control, Ended
from grete.errors import (
    CoordinatorUnavailable,
    Fenced,
    GreteError,
    MayStillCommit,
    OffsetsRemoved,
    StorageFull,
)
from grete.failpoints import failpoint
from grete.tasks.commit.base import BatchOutcome
from grete.text_logs import shortened

_log = logging.getLogger("grete.container")
_WAIT_S = 0.2
_WAIT_AT_BARRIER_S = 0.5
"""It ends with the directive; this is for a SIGTERM that no directive goes with, and a report that was lost."""
_OUTAGE_PAUSE_S = (0.5, 5.0)
"""Between attempts while a store does not answer, each of which waits for as long as that store's own time-out."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask a coordinator for the assignment. CoordinatorUnavailable: none answers."""


@dataclass(frozen=True, slots=True)
class Locate:
    """Write into the coordinator stream where the container runs."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Work:
    """Run the assignment until it is drained, interrupted, or shut down by a task; answered with which."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class WaitForAnswer:
    """Wait for the coordinator's next answer, at most so long."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class WaitAt:
    """Report at once that the container is at the barrier, and wait for the directive to leave it for so long."""

    barrier: int
    timeout_s: float


Step = Fetch | Locate | Work | WaitForAnswer | WaitAt


Report = Callable[..., None]
"""Sets fields of the next heartbeat, by their names."""


class ContainerLifecycle:
    """The steps of one container; a thread of its own may report meanwhile."""

    def __init__(self, container: str, epoch: int, control: Control, report: Report) -> None:
        self._container = container
        self._epoch = epoch
        self._control = control
        self._report = report
        self._outage_pause_s = _OUTAGE_PAUSE_S[0]
        self._outage = ""
        self._done = BatchOutcome()
        self._commits = 0

    def steps(self) -> Generator[Step, Any, Ended]:
        """The steps; the last is followed by why the container ends.

        Raises:
            GreteError: thrown at a step, and not one after which the container goes on.
        """
        assignment = yield from self._assignment(is_first=True)
        yield Locate(assignment)
        failpoint("container.locality-written")
        ended = yield from self._process(assignment)
        while ended is Ended.INTERRUPTED and not self._control.is_stopping:
            yield from self._wait_at_barrier()
            if not self._control.is_stopping:
                assignment = yield from self._assignment()
                ended = yield from self._process(assignment)
        self._report(state="stopped" if self._control.is_stopping else "drained")
        return ended

    def _assignment(self, *, is_first: bool = False) -> Generator[Step, Any, Assignment]:
        """The assignment of whichever coordinator answers: one that is gone has a successor."""
        is_logged = False
        while True:
            try:
                assignment: Assignment = yield Fetch()
                break
            except CoordinatorUnavailable:
                if is_first or self._control.is_stopping:
                    raise
            if not is_logged:
                _log.warning("waiting for a coordinator")
            is_logged = True
            yield WaitForAnswer(_WAIT_S)
        if assignment.epoch != self._epoch:
            raise Fenced(assignment.fence.scope, epoch=self._epoch, seen=assignment.epoch)
        self._control.running(assignment.serial)
        self._report(state="starting", serial=assignment.serial, paused=0, message=self._outage)
        return assignment

    def _process(self, assignment: Assignment) -> Generator[Step, Any, Ended]:
        """Work; when a store does not answer or is full, wait and start the work again, however long it takes (G15).

        So too when retention has overtaken a task and the job skips that: the next start skips it and reports it.
        Ending the process would cost Spark's start at each attempt, and the container would be given up after some.
        One that is to end has failed when something of it may still commit: that it ended well says the contrary.
        """
        try:
            ended: Ended = yield Work(assignment)
            return ended
        except GreteError as error:
            policy = assignment.settings.task.lost_offsets
            is_skipped = isinstance(error, OffsetsRemoved) and policy is LostOffsets.SKIP
            may_pass = error.may_pass or is_skipped or isinstance(error, StorageFull)
            is_unsafe = self._control.is_stopping and isinstance(error, MayStillCommit)
            if is_unsafe or not may_pass:
                raise
            # the first time of an outage, which is over with the next batch: it may last for days
            level = logging.DEBUG if self._outage else logging.WARNING
            _log.log(
                level,
                "container %s waits, and starts its work again until it can go on: %s",
                *(self._container, error),
            )
            self._outage = shortened(str(error), 2000) or type(error).__name__
            self._report(state="waiting", message=self._outage)
        yield WaitForAnswer(self._outage_pause_s)
        self._outage_pause_s = min(2 * self._outage_pause_s, _OUTAGE_PAUSE_S[1])
        return Ended.INTERRUPTED

    @property
    def has_committed(self) -> bool:
        """Whether any batch of this incarnation is committed."""
        return self._commits > 0

    def on_batch(self, batch_id: int, outcome: BatchOutcome) -> None:
        """A batch is committed: count it, and report that an outage is over."""
        self._outage_pause_s = _OUTAGE_PAUSE_S[0]
        if self._outage:
            _log.warning("container %s goes on", self._container)
            self._outage = ""
        self._commits += 1
        self._done.records += outcome.records
        self._done.dead_letters += outcome.dead_letters
        self._done.commit_s += outcome.commit_s
        self._done.cpu_s += outcome.cpu_s
        self._report(
            state="running",
            message="",
            batch_id=batch_id,
            records=self._done.records,
            commits=self._commits,
            dead_letters=self._done.dead_letters,
            commit_seconds=self._done.commit_s,
            last_commit_seconds=outcome.commit_s,
            cpu_seconds=self._done.cpu_s,
        )

    def _wait_at_barrier(self) -> Generator[Step, Any, None]:
        """The query has ended and everything of it is committed: report it, and wait for the directive to run."""
        while (barrier := self._control.barrier) and not self._control.is_stopping:
            self._report(state="paused", paused=barrier)
            yield WaitAt(barrier, _WAIT_AT_BARRIER_S)
