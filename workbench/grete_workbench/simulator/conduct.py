"""Rules of coordinators, checked at each of their actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grete.coordination.base import Leadership
from grete.coordinator.plan import JobPlan
from grete.coordinator.state import FINAL
from grete.launch.base import ContainerExit
from grete.model.ids import ContainerId, JobId
from grete_workbench.simulator.ledger import Violation

if TYPE_CHECKING:
    from grete_workbench.simulator.container import ContainerProgram
    from grete_workbench.simulator.coordinator import CoordinatorProgram
    from grete_workbench.simulator.stores import ProcessCoordination
    from grete_workbench.simulator.world import World

JOB = JobId("simulated", "1")
"""The one job of a world."""


def incarnation_of(container: ContainerId, epoch: int) -> str:
    """The name of one incarnation of a container."""
    return f"container {container}#{epoch:x}"


class Conduct:
    """Looks over the shoulders of all coordinators of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._excused: set[CoordinatorProgram] = set()
        self._epochs: dict[int, CoordinatorProgram] = {}

    def leads(self, program: CoordinatorProgram, leadership: Leadership) -> None:
        """A coordinator was elected.

        Raises:
            Violation: its epoch is another one's; or another one may act still, by its own clock, and it was not
                taken over on purpose.
        """
        self._world.note(f"{program.process.name} leads under epoch {leadership.epoch}")
        if self._epochs.setdefault(leadership.epoch, program) is not program:
            raise Violation("an epoch is one leader's alone", f"{program.process.name}: {leadership.epoch}")
        if program.take_over or not program.coordination.is_valid():
            return  # as requested, or it was held up until its time was over
        for other in self._world.coordinators:
            if other is program or not other.process.is_alive or other in self._excused:
                continue
            if other.coordination.is_valid():
                raise Violation("one leader at a time", f"{other.process.name} and {program.process.name}")

    def excuse_leaders(self) -> None:
        """An operator has broken the lease of the leader."""
        self._excused.update(self._world.coordinators)

    def releases(self, coordination: ProcessCoordination) -> None:
        """A coordinator gives its leadership up.

        Raises:
            Violation: its job has ended, and the stream does not say so yet.
        """
        program = next(one for one in self._world.coordinators if one.coordination is coordination)
        if program.loop is not None and program.loop.state.phase in FINAL:
            self._world.watch.check()
            if program.run_id not in self._world.watch.ended_runs:
                raise Violation(
                    "the terminal state is durable before the leadership is released", program.url
                )

    def acts(self, program: CoordinatorProgram, what: str) -> None:
        """A coordinator does something to a container.

        Raises:
            Violation: its leadership was over when it began to.
        """
        self._world.note(f"{program.process.name}: {what}")
        if not program.coordination.may_act():
            raise Violation("no action of an expired leader", f"{program.process.name} did: {what}")

    def replaces(self, known: ContainerProgram) -> None:
        """A coordinator is about to start another incarnation of a container that it has started.

        Raises:
            Violation: the one before runs and may still commit.
        """
        if not known.process.is_alive:
            return
        if not self._world.is_fenced(known):
            raise Violation("one incarnation at a time", f"{known.incarnation} runs and is not fenced off")

    def starts(self, container: ContainerId, epoch: int) -> None:
        """A processor is about to run a container.

        Raises:
            Violation: an earlier incarnation runs elsewhere, and may still commit.
        """
        for known in self._world.containers.values():
            if known.id == container and known.epoch < epoch:
                self.replaces(known)

    def exited(self, exit_: ContainerExit) -> None:
        """A launcher reports the end of a container, and does not say that it may live.

        Raises:
            Violation: it runs.
        """
        known = self._world.containers.get(incarnation_of(exit_.container_id, exit_.epoch))
        if known is not None and known.process.is_alive and not exit_.may_live:
            raise Violation("a container that is said to have ended has", known.incarnation)

    def launched(self, program: ContainerProgram) -> None:
        """A container was started.

        Raises:
            Violation: its epoch was used before.
        """
        if program.incarnation in self._world.containers:
            raise Violation("an epoch never repeats", program.incarnation)
        self._world.containers[program.incarnation] = program

    def check_model(self, plan: JobPlan) -> None:
        """A coordinator is about to make this model the job's.

        Raises:
            Violation: it does not cover each partition once, at the task that has its keys.
        """
        owners: dict[int, str] = {}
        for task in plan.model.tasks.values():
            for ssp in task.ssps:
                if owners.setdefault(ssp.partition, task.name) != task.name:
                    raise Violation("the model covers each partition once", f"{ssp} is in two tasks")
        tasks = len(plan.model.tasks)
        wrong = {p: owner for p, owner in owners.items() if owner != f"Partition {p % tasks}"}
        if sorted(owners) != list(range(len(owners))) or len(owners) < tasks or wrong:
            raise Violation("the model covers each partition once", f"{dict(sorted(owners.items()))}")
