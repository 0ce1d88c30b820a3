"""The launch port of a job of stream processors: the product's own, with its thread as a script of the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grete.config.key_tables.job import CONTAINER_IDS
from grete.coordination.cells import cell_name
from grete.coordination.membership import Membership
from grete.coordination.memory import MemoryCells
from grete.embedded.launcher import ProcessorsLauncher
from grete.errors import GreteError
from grete.launch.base import ContainerExit, ContainerStart
from grete.metadata.launches import LaunchRecord
from grete.model.fence import processors_scope
from grete.model.ids import ContainerId
from grete_workbench.simulator.conduct import JOB, incarnation_of
from grete_workbench.simulator.scheduler import Script, Sleep
from grete_workbench.simulator.stores import ProcessCells

if TYPE_CHECKING:
    from grete_workbench.simulator.coordinator import CoordinatorProgram
    from grete_workbench.simulator.scheduler import Process
    from grete_workbench.simulator.world import World

MEMBER_TTL_S = 9.0
LOOK_S = 0.5


def cells_for(world: World, process: Process) -> ProcessCells:
    """A process's handle on the cells of the job's processors."""
    return ProcessCells(MemoryCells(world.leaderships.values, processors_scope(JOB)), world, process)


class SimulatedProcessors(ProcessorsLauncher):
    """Gives containers to the processors of the world. Each call and each exit is checked."""

    def __init__(self, coordinator: CoordinatorProgram, leadership: int) -> None:
        self._coordinator = coordinator
        self._world = coordinator.world
        self._process = coordinator.process
        self._is_at_work = False
        cells, clock = cells_for(self._world, self._process), self._process.clock
        members = Membership(cells, clock, ttl_s=MEMBER_TTL_S)
        super().__init__(cells, members, clock, leadership=leadership, every_s=LOOK_S)
        self._process.on_end.append(self._wish_no_more)

    def _wish_no_more(self) -> None:
        self._world.watch.check()  # what it has written just now was its own wish still
        self._world.watch.wishes.pop(self._process.name, None)

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        self._world.conduct.acts(self._coordinator, f"start container {container.container_id}")
        super().start(container)

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher."""
        self._world.conduct.acts(self._coordinator, f"stop container {container_id}")
        super().request_stop(container_id)

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher."""
        self._world.conduct.acts(self._coordinator, f"kill container {container_id}")
        super().kill(container_id)

    def exits(self) -> list[ContainerExit]:
        """See Launcher."""
        found = super().exits()
        for exit_ in found:
            self._world.conduct.exited(exit_)
        return found

    def room(self) -> Sequence[ContainerId]:
        """See Launcher. The leader may write it into the configuration, once it has been the same for a while."""
        room = super().room()
        if room:
            self._world.watch.check()  # what was wished before may have been written
            self._world.watch.wishes[self._process.name] = {CONTAINER_IDS.name: ",".join(room)}
        return room

    def runs(self, container: ContainerId, record: LaunchRecord) -> bool:
        """Whether a processor runs the container that is a member, as far as the cells say."""
        known = self._world.containers.get(incarnation_of(container, record.epoch))
        if not record.handle or known is None or not known.process.is_alive:
            return False
        return any(
            one.runs(known) and self._is_member(one.id, one.agent.incarnation)
            for one in self._world.processors.living()
        )

    def _is_member(self, id_: str, incarnation: str) -> bool:
        cell = MemoryCells(self._world.leaderships.values, processors_scope(JOB)).read(
            cell_name("members", id_)
        )
        return cell is not None and incarnation.encode() in cell.value

    def _begin(self) -> None:
        if not self._is_at_work:
            self._is_at_work = True
            self._process.spawn(self._turns())

    def _turns(self) -> Script:
        while True:
            if not self._closed.is_set():
                try:
                    self._turn()
                except GreteError as error:
                    self._world.note(f"{self._process.name}: processors cannot be looked at: {error}")
            yield Sleep(LOOK_S)
