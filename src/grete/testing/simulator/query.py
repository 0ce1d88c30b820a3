"""The work of a container in the simulated world: the product's batches, with the world going on between their steps.

Between planning a batch, each of its shares, and the container's note of it other processes act, or this one dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grete.container.assignment import Assignment
from grete.container.batches import Batch, Batches
from grete.container.checkpoints import checkpoint_store
from grete.container.control import Ended
from grete.container.start import steps
from grete.testing.job_container import LocalEngine
from grete.testing.simulator.scheduler import Sleep

if TYPE_CHECKING:
    from grete.testing.simulator.container import ContainerProgram

_TRIGGER_S = 4.0
_ROWS = 12
_SLOTS = 2


class QueryRun:
    """One run of one container's work: between two barriers, or from start to end."""

    def __init__(self, container: ContainerProgram, assignment: Assignment) -> None:
        self._container = container
        self._assignment = assignment
        self._world = container.world
        self._system = container.system
        self._clock = container.process.clock
        self._engine: LocalEngine | None = None

    def close(self) -> None:
        """Give files and locks back, as the end of a process does."""
        if self._engine is not None:
            self._engine.kill()
            self._engine = None

    def run(self) -> Any:
        """Run batches until interrupted or drained; returns which."""
        self._system.tasks = [task.name for task in self._assignment.tasks if task.pending.startpoints]
        started = yield from self._start()
        yield Sleep()
        batches = Batches(started, self._clock, slots_at_most=_SLOTS)
        self._engine = LocalEngine(self._clock, self._system)
        return (yield from self._batches(batches, self._engine))

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

    def _batches(self, batches: Batches, engine: LocalEngine) -> Any:
        if self._assignment.until_drained:
            batches.stop_at_the_end()
        while not self._container.control.is_set():
            batch = batches.next(rows=_ROWS)
            if batch is None:
                if self._assignment.until_drained:
                    return Ended.DRAINED
            else:
                yield Sleep()
                yield from self._batch(batches, batch, engine)
            yield Sleep(_TRIGGER_S)
        return Ended.INTERRUPTED

    def _batch(self, batches: Batches, batch: Batch, engine: LocalEngine) -> Any:
        results = []
        for slot, group in batch.groups.items():
            self._system.tasks = [
                batches.spec.tasks[index].name for index, _ in group if index not in batch.plan.skip
            ]
            results += engine.run_slot(batches.spec, batch, slot)
            yield Sleep(0.5)
        outcome = batches.commit(batch, results)
        self._container.course.on_batch(batch.plan.batch_id, outcome)
        yield Sleep()
