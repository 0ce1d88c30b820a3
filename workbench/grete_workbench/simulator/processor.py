"""A stream processor of the simulated world: the product's agent, with a coordinator and containers beside it.

Each is a process of the scheduler that dies and stands still with the others, and has the same clocks: together they
are one program, whose threads they would be. `grete.embedded.processor` and its `leading` are a few lines here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grete.coordinator.events import StepDownRequested, StopRequested
from grete.embedded.agent import Agent, Running
from grete.embedded.orders import Order
from grete.errors import CoordinationError, CoordinationUnreachable, IdTaken
from grete.launch.base import ContainerStart
from grete.model.ending import ContainerEnd, ExitCode, Failure
from grete_workbench.simulator.container import ContainerProgram
from grete_workbench.simulator.ledger import Violation
from grete_workbench.simulator.processor_launcher import LOOK_S, MEMBER_TTL_S, cells_for
from grete_workbench.simulator.scheduler import KILLED, Killed, Process, Script, Sleep

if TYPE_CHECKING:
    from grete_workbench.simulator.coordinator import CoordinatorProgram
    from grete_workbench.simulator.world import World

_IN_ORDER = (ExitCode.OK, ExitCode.STOPPED, ExitCode.FENCED)
_PATIENCE_S = 1.2 * MEMBER_TTL_S


class SimulatedAgent(Agent):
    """The product's agent, which begins processes instead of threads, and does not wait: its script does."""

    def __init__(self, program: ProcessorProgram) -> None:
        self._program = program
        self._gives_up_s: float | None = None
        super().__init__(
            program.id,
            cells_for(program.world, program.process),
            program.process.clock,
            lambda environment, stop, on_state: ContainerEnd(ExitCode.OK),
            lambda state: None,
            ttl_s=MEMBER_TTL_S,
            every_s=LOOK_S,
        )

    @property
    def is_stopping(self) -> bool:
        """Whether it is to leave, or has left."""
        return self._stopping.is_set()

    @property
    def incarnation(self) -> str:
        """That of its membership, empty without one."""
        return "" if self._admission is None else self._admission.member.incarnation

    @property
    def running(self) -> Running | None:
        """The container that it knows of."""
        return self._running

    def join(self, *, patiently: bool = True) -> None:
        """As the product's, which waits for a member of its id: each look tries again for so long."""
        try:
            super().join(patiently=False)
            self._gives_up_s = None
        except IdTaken:
            now_s = self._clock.monotonic_s()
            if self._gives_up_s is None:
                self._gives_up_s = now_s + _PATIENCE_S
            if now_s >= self._gives_up_s:
                self._gives_up_s = None
                raise IdTaken(self.id, "another processor") from None
            raise CoordinationUnreachable(
                "simulated: it is not known yet whether that member lives"
            ) from None

    def _start(self, order: Order) -> None:
        self._running = Running(order)
        self._program.run(self._running)

    def _rest(self) -> None:
        pass

    def _pause(self) -> None:
        pass


class ProcessorProgram:
    """One processor, from its start to its end."""

    def __init__(
        self, world: World, id_: str, number: int, submitted: tuple[str, dict[str, str]] | None
    ) -> None:
        self.world = world
        self.id = id_
        self.submitted = submitted
        self.process = world.process(f"processor {id_} #{number}")
        self.process.clock.on_wait = self._wait
        self.agent = SimulatedAgent(self)
        self._coordinator: CoordinatorProgram | None = None
        self._containers: list[ContainerProgram] = []
        self.process.on_end.append(self._over)
        self.process.spawn(self._main(), 0.1)

    def part(self, name: str) -> Process:
        """A thread of its program."""
        process = self.world.process(name, self.process.clock)
        process.together = self.process.together
        process.together.append(process)
        return process

    def _wait(self, seconds_s: float) -> None:
        """A launcher that is closed waits for its containers, and the world goes on meanwhile."""
        self.world.run_until(self.world.scheduler.now_s + seconds_s)
        if self.process.exit_code == KILLED:
            raise Killed

    # --- StreamProcessor ---

    def _main(self) -> Script:
        while not self.agent.incarnation:
            try:
                self.agent.join()
            except CoordinationError:
                yield Sleep(1.0)
        self._coordinate()
        while not self.agent.look():
            yield Sleep(LOOK_S)

    def _over(self) -> None:
        """It has left, or was killed: then its threads are ended anyhow."""
        if self.process.exit_code == KILLED:
            return
        if self.process.exit_code == 0 and any(one.process.is_alive for one in self._containers):
            raise Violation("a processor leaves when its container has ended", self.process.name)
        coordinator = self._coordinator
        if coordinator is None:
            return
        if self.agent.is_last:
            coordinator.ask(StopRequested(8.0, "the last processor has left"))
        elif coordinator.coordination.leadership is None:
            coordinator.process.end()
        else:
            coordinator.ask(StepDownRequested("its processor leaves"))

    # --- its coordinator ---

    def _coordinate(self) -> None:
        coordinator = self.world.coordinate(self.world.unwritten(self.submitted), processor=self)
        self._coordinator = coordinator
        coordinator.process.on_end.append(lambda: self._coordinated(coordinator))

    def _coordinated(self, ended: CoordinatorProgram) -> None:
        if ended.process.exit_code == KILLED or not self.process.is_alive:
            return
        has_ended = self.world.watch.ended is not None and self.world.unwritten(self.submitted) is None
        if ended.process.exit_code == 0 and has_ended:
            self.agent.stop()
        else:
            self.world.scheduler.after(self.world.chance.uniform(0.5, 6.0), self._coordinate_again)

    def _coordinate_again(self) -> None:
        if not self.process.is_alive or self.agent.is_stopping:
            return
        if self.process.is_running:
            self._coordinate()
        else:
            self.world.scheduler.after(1.0, self._coordinate_again)

    # --- its container ---

    def run(self, running: Running) -> None:
        """Run a container until it ends.

        Raises:
            Violation: another one runs here, or the same one elsewhere.
        """
        order = running.order
        if any(one.process.is_alive for one in self._containers):
            raise Violation("a processor runs one container", f"{self.process.name}: {order}")
        self.world.conduct.starts(order.container, order.epoch)
        start = ContainerStart(order.container, order.epoch, order.environment)
        program = ContainerProgram(self.world, start, "a", begin=self.part, stop=running.stop)
        self.world.conduct.launched(program)
        self._containers.append(program)
        program.process.on_end.append(lambda: self._ended(running, program.process))

    def _ended(self, running: Running, process: Process) -> None:
        code = int(process.exit_code or 0)
        kind, _, message = process.reason.partition(": ")
        running.end = ContainerEnd(code, None if code in _IN_ORDER else Failure(kind, message))

    def runs(self, container: ContainerProgram) -> bool:
        """Whether it runs this container, and was not told to end it."""
        running = self.agent.running
        return container in self._containers and running is not None and not running.stop.is_set()
