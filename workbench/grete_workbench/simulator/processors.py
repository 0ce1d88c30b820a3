"""The stream processors of a world that has some: they come and go, and those that die are started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grete.config.choices import LauncherChoice
from grete.config.key_tables.coordinator import DEBOUNCE
from grete.config.key_tables.job import LAUNCHER
from grete_workbench.simulator.faults import OPERATOR_KINDS, UNFIT_CONFIG
from grete_workbench.simulator.processor import ProcessorProgram

if TYPE_CHECKING:
    from grete_workbench.simulator.world import World

_AT_MOST = 5
_NOT_OF_PROCESSORS = ("container-count", "take-over")
"""There are as many containers as processors, and no processor takes a living leader's place."""


class Processors:
    """The processors of a job. Unless they `exist` its containers are processes of their own."""

    def __init__(self, world: World, *, exist: bool) -> None:
        self.exist = exist
        self._world = world
        self._all: list[ProcessorProgram] = []
        self._wanted = world.chance.randint(1, 4) if exist else 0
        self._names = 0

    @property
    def operator_kinds(self) -> tuple[str, ...]:
        """What an operator does to such a job."""
        if not self.exist:
            return (*OPERATOR_KINDS, UNFIT_CONFIG)
        return (*(kind for kind in OPERATOR_KINDS if kind not in _NOT_OF_PROCESSORS), UNFIT_CONFIG)

    def config(self) -> dict[str, str]:
        """The part of the configuration that makes the job one of processors."""
        if not self.exist:
            return {}
        debounce_ms = self._world.chance.choice((500, 2_000, 6_000))
        return {LAUNCHER.name: LauncherChoice.PROCESSORS.value, DEBOUNCE.name: str(debounce_ms)}

    def living(self) -> list[ProcessorProgram]:
        """Those whose process lives."""
        return [one for one in self._all if one.process.is_alive]

    def _staying(self) -> list[ProcessorProgram]:
        return [one for one in self.living() if not one.agent.is_stopping]

    def gather(self, submitted: tuple[str, dict[str, str]] | None) -> None:
        """One joins with what was submitted, others until there are as many as the world wants."""
        self.join(self._name(), submitted)
        while len(self._staying()) < self._wanted:
            self.join(self._name())

    def go_on(self) -> None:
        """A job that has not ended has a processor."""
        if self.exist and not self._staying() and self._world.watch.ended is None:
            self.join(self._name())

    def join(self, id_: str, submitted: tuple[str, dict[str, str]] | None = None) -> None:
        """A processor is started."""
        one = ProcessorProgram(self._world, id_, len(self._all), submitted)
        self._all.append(one)
        one.process.on_end.append(lambda: self._ended(one))

    def join_another(self) -> None:
        """A processor more, unless there are many."""
        if len(self._staying()) < _AT_MOST:
            self.join(self._name())

    def leave(self) -> None:
        """A processor is asked to stop, unless it is the only one."""
        staying = self._staying()
        if len(staying) > 1:
            self._world.chance.choice(staying).agent.stop()

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def _ended(self, ended: ProcessorProgram) -> None:
        """Start one again that died or has failed, quite often under its id, or that has not submitted yet."""
        is_done = ended.process.exit_code == 0 and ended.agent.failure is None
        if not is_done or self._world.unwritten(ended.submitted) is not None:
            pause_s = self._world.chance.uniform(0.5, 6.0)
            self._world.scheduler.after(pause_s, lambda: self._succeed(ended))

    def _succeed(self, ended: ProcessorProgram) -> None:
        submitted = self._world.unwritten(ended.submitted)
        if submitted is None and self._world.watch.ended is not None:
            return
        id_ = ended.id if self._world.chance.random() < 0.7 else self._name()
        self.join(id_, submitted)
