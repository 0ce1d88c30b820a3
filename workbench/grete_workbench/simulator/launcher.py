"""The launch port of the simulated world: containers are simulated processes of the coordinator's host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.metadata.launches import LaunchRecord
from grete.model.ids import ContainerId
from grete.wire.container_protocol import Command, Directive
from grete_workbench.simulator.container import ContainerProgram
from grete_workbench.simulator.scheduler import KILLED

if TYPE_CHECKING:
    from grete_workbench.simulator.coordinator import CoordinatorProgram


class SimulatedLauncher(Launcher):
    """Starts containers on the coordinator's host, and finds those that another coordinator has started there."""

    def __init__(self, coordinator: CoordinatorProgram) -> None:
        self._coordinator = coordinator
        self._world = coordinator.world
        self._running: dict[ContainerId, ContainerProgram] = {}
        self._ended: list[ContainerExit] = []

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        self._world.conduct.acts(self._coordinator, f"start container {container.container_id}")
        known = self._running.get(container.container_id)
        if known is not None and known.epoch == container.epoch:
            return
        if known is not None:
            self._world.conduct.replaces(known)
        self._report()
        program = ContainerProgram(self._world, container, self._coordinator.host)
        self._world.conduct.launched(program)
        self._running[container.container_id] = program

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher."""
        self._world.conduct.acts(self._coordinator, f"stop container {container_id}")
        program = self._running.get(container_id)
        if program is not None:
            program.control.on_directive(Directive(Command.STOP, 0))

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher."""
        self._world.conduct.acts(self._coordinator, f"kill container {container_id}")
        program = self._running.get(container_id)
        if program is not None and self._world.kills_reach:
            program.process.kill()

    def exits(self) -> list[ContainerExit]:
        """See Launcher."""
        self._report()
        ended, self._ended = self._ended, []
        return ended

    def _report(self) -> None:
        for id_, program in list(self._running.items()):
            code = program.process.exit_code
            if code is not None:
                self._ended.append(ContainerExit(id_, program.epoch, code, program.process.reason))
                del self._running[id_]

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher."""
        program = self._running.get(container_id)
        return "" if program is None else program.incarnation

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher."""
        program = self._world.containers.get(handle)
        if program is None or program.host != self._coordinator.host or program.process.exit_code == KILLED:
            return False  # not here, or it ended without a word
        self._running[container.container_id] = program
        return True

    def runs(self, container: ContainerId, record: LaunchRecord) -> bool:
        """Whether the container runs here."""
        program = self._world.containers.get(record.handle)
        return program is not None and program.host == self._coordinator.host and program.process.is_alive

    def abandon(self) -> None:
        """See Launcher."""
        self._running.clear()

    def close(self) -> None:
        """See Launcher."""
        for id_ in list(self._running):
            self.kill(id_)
