"""The work of a container in the simulated world: the product's shares, with the world going on between their steps.

Between processing and committing, and between a commit and the container's note of it, other processes act, or this
one dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.control import Ended
from grete.container.epochs import Epoch
from grete.container.start import steps
from grete.testing.job_container import LocalShares
from grete.testing.simulator.scheduler import Sleep

if TYPE_CHECKING:
    from grete.testing.simulator.container import ContainerProgram

_TRIGGER_S = 4.0
_ROWS = 6
_SHARES = 2


class QueryRun:
    """One run of one container's work: between two barriers, or from start to end."""

    def __init__(self, container: ContainerProgram, assignment: Assignment) -> None:
        self._container = container
        self._assignment = assignment
        self._world = container.world
        self._system = container.system
        self._clock = container.process.clock
        self._shares: LocalShares | None = None

    def close(self) -> None:
        """Give files and locks back, as the end of a process does."""
        if self._shares is not None:
            self._shares.kill()
            self._shares.close()
            self._shares = None

    def run(self) -> Any:
        """Run an epoch until interrupted or drained; returns which."""
        self._system.tasks = [task.name for task in self._assignment.tasks if task.pending.startpoints]
        started = yield from self._start()
        yield Sleep()
        epoch = Epoch(started, self._clock, slots_at_most=_SHARES, on_batch=self._container.course.on_batch)
        shares = LocalShares(epoch, self._clock, system=self._system, commit_s=0.0, records_at_most=_ROWS)
        self._shares = shares
        return (yield from self._work(epoch, shares))

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

    def _work(self, epoch: Epoch, shares: LocalShares) -> Any:
        while not self._container.control.is_set():
            for loop in shares.loops:
                tasks = loop.process()
                yield Sleep(0.5)
                if tasks:
                    self._system.tasks = [epoch.spec.tasks[index].name for index in tasks]
                    made = loop.commit()
                    yield Sleep()
                    epoch.committed(made)
            if shares.are_drained:
                return Ended.DRAINED
            yield Sleep(_TRIGGER_S)
        return Ended.INTERRUPTED
