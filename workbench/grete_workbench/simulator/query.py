"""The work of a container in the simulated world: its start, and the epochs of its shares under a simulated Spark."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.control import Ended, Interruption
from grete.container.epochs import Epoch
from grete.container.share_server import EndedWell
from grete.container.start import steps
from grete.errors import GreteError, JobError
from grete.tasks.shares import Committed
from grete_workbench.simulator.scheduler import Sleep
from grete_workbench.simulator.share import Line, ShareProgram

if TYPE_CHECKING:
    from grete_workbench.simulator.container import ContainerProgram

_LOOKS_S = 1.0
_END_S = 8.0
_NO_ROOM = 0.5
_ATTEMPTS = (1, 4, 4)
"""Spark's maxFailures: a local master has one."""


class QueryRun:
    """One run of one container's work: between two barriers, or from start to end."""

    def __init__(self, container: ContainerProgram, assignment: Assignment) -> None:
        self._container = container
        self._assignment = assignment
        self._world = container.world
        self._system = container.system
        self.spark: SimulatedSpark | None = None

    def close(self) -> None:
        """Let the shares that are left notice that their container is gone, each in its time."""
        if self.spark is not None:
            self.spark.close()

    def run(self) -> Any:
        """Run an epoch until interrupted or drained; returns which."""
        self._system.tasks = [task.name for task in self._assignment.tasks if task.pending.startpoints]
        started = yield from self._start()
        yield Sleep()
        container = self._container
        epoch = Epoch(
            started,
            container.process.clock,
            slots_at_most=container.slots_at_most,
            on_batch=container.course.on_batch,
        )
        self.spark = SimulatedSpark(container, epoch)
        with epoch.ending(container.kept, container.control):
            ended = yield from self.spark.run(container.control)
            yield Sleep()
        return ended

    def _start(self) -> Any:
        """The product's start, with the world going on between its steps."""
        home, clock = self._container.home, self._container.process.clock
        store = checkpoint_store(self._assignment, clock, home)
        ended = self._container.kept.take(self._assignment.fence)
        remaining = steps(self._assignment, self._system, store, clock, home, ended=ended)
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


class SimulatedSpark:
    """Runs the shares of an epoch, each a process, and starts one again that died, or that it takes for lost."""

    def __init__(self, container: ContainerProgram, epoch: Epoch) -> None:
        self.container = container
        self.epoch = epoch
        self.events: deque[Committed | EndedWell] = deque()
        self._world = container.world
        self._lines: dict[int, Line] = {}
        self._is_ending = False
        self._drained: set[int] = set()
        self._attempts = self._world.chance.choice(_ATTEMPTS)
        self._failures = dict.fromkeys(epoch.slots, 0)
        self._shares = {slot: ShareProgram(self._world, self, slot) for slot in epoch.slots}
        self._all = list(self._shares.values())

    @property
    def shares(self) -> list[ShareProgram]:
        """The attempts that live."""
        return [share for share in self._all if share.process.is_alive]

    def run(self, control: Interruption) -> Any:
        """Run every share until all have ended; returns why. Raises the error of one that failed too often."""
        ends_s = float("inf")
        clock = self.container.process.clock
        try:
            while self._go_on():
                self._take_events()
                if not self._is_ending and (control.is_set() or self.epoch.shuts_down):
                    self._end_all()
                    ends_s = clock.monotonic_s() + _END_S
                if clock.monotonic_s() > ends_s:
                    self._kill()
                yield Sleep(_LOOKS_S)
        finally:
            self._end_all()
        yield Sleep()
        self._take_events()
        if self.epoch.shuts_down:
            return Ended.SHUTDOWN
        return Ended.DRAINED if self._drained >= set(self.epoch.slots) else Ended.INTERRUPTED

    def _go_on(self) -> bool:
        """Start those again that failed or are taken for lost; whether some are left.

        Raises:
            GreteError: one has failed too often.
        """
        for slot, share in self._shares.items():
            if share.is_lost and not self._is_ending:
                self._lost(slot)
            elif share.process.exit_code not in (None, 0):
                self._failures[slot] += 1
                if self._failures[slot] >= self._attempts:
                    raise self._failed(slot)
                self._again(slot)
        return any(share.process.is_alive and not share.is_lost for share in self._shares.values())

    def _lost(self, slot: int) -> None:
        """Its executor is gone: the share begins elsewhere, or there is room for one less, and the epoch is over."""
        if self._world.chance.random() < _NO_ROOM:
            self.container.slots_at_most = max(1, self.container.slots_at_most - 1)
            self._end_all()
        else:
            self._again(slot)

    def _failed(self, slot: int) -> GreteError:
        self._world.scheduler.after(self._world.chance.uniform(0.0, 3.0), self._kill)
        return self._shares[slot].error or JobError(f"the worker of share {slot} died {self._attempts} times")

    def _again(self, slot: int) -> None:
        self._shares[slot] = ShareProgram(self._world, self, slot)
        self._all.append(self._shares[slot])

    def _take_events(self) -> None:
        while self.events:
            match self.events.popleft():
                case Committed() as made:
                    self.epoch.committed(made)
                case EndedWell(slot, is_drained):
                    self._drained |= {slot} if is_drained else set()
                    self.epoch.ended()

    # --- the server of `container.share_server` ---

    def greet(self, line: Line) -> None:
        """Answer a share that begins; a thread does, whatever the others are at."""
        process = self.container.process
        if not process.is_alive:
            return
        if not process.is_running:
            self._world.scheduler.after(_LOOKS_S, lambda: self.greet(line))
            return
        if self._is_ending:
            line.begin(None)
            return
        if line.slot in self._lines:
            self._lines[line.slot].replace()
        self._lines[line.slot] = line
        self.epoch.began()
        line.begin(self.epoch.start_of(line.slot))

    def reported(self, line: Line, committed: Committed) -> None:
        """Take note of what an attempt has committed; one that was succeeded may still report."""
        self.events.append(committed)
        is_late = self._lines.get(line.slot) not in (line, None)
        if is_late and self._world.faults.strikes("killed-at-a-late-report"):
            self._shares[line.slot].process.kill()

    def _end_all(self) -> None:
        self._is_ending = True
        for line in self._lines.values():
            line.ask_to_end()

    def _kill(self) -> None:
        """Kill what does not end; who is taken for lost is not there to be killed."""
        for share in self.shares:
            if not share.is_lost:
                share.process.kill()

    def close(self) -> None:
        """The container is gone, or has given its shares up: their connections break."""
        for share in self.shares:
            share.line.cut(self._world.chance.uniform(0.1, 6.0))
