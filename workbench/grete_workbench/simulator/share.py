"""A share in the simulated world: a process of its own, as the Python worker of a Spark task is.

It can be killed, paused, taken for lost while it goes on, or cut off from its container, and its container lives on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grete.container.share_server import EndedWell
from grete.errors import ContainerGone, GreteError, JobError
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share_loop import ShareLoop
from grete.tasks.share_task import work
from grete.tasks.shares import Committed, ShareStart
from grete_workbench.simulator.scheduler import Ended, Process, Script, Sleep
from grete_workbench.simulator.stores import ProcessSystem

if TYPE_CHECKING:
    from grete_workbench.simulator.query import SimulatedSpark
    from grete_workbench.simulator.world import World

_STEP_S = 0.5
_IDLE_S = 3.0
_ROWS = 6
_ANSWER_S = 10.0
_LOOKS_S = 0.3
_BEGIN_S = (1.0, 1.0, 8.0)
_LATENCY_S = 0.01
_PACES = (0.5, 1.0, 1.0, 4.0)


class Line:
    """The connection between an attempt at a share and its container: messages are late, or lost with it.

    The share's end has the interface of `tasks.share_channel.ShareChannel`.
    """

    def __init__(self, world: World, slot: int, container: SimulatedSpark) -> None:
        self._world = world
        self._container = container
        self._due_s = {"to": 0.0, "from": 0.0}
        self._is_silent = False
        self._is_ending = False
        self.slot = slot
        self.is_broken = False
        self._is_lost = False
        self.answer: tuple[ShareStart | None] | None = None
        """The container's only answer, once it is there."""

    # --- the share's end ---

    def is_ending(self) -> bool:
        """See ShareChannel."""
        return self._is_ending

    def hello(self) -> None:
        """Ask for the beginning."""
        self._carry("to", lambda: self._container.greet(self))

    def report(self, committed: Committed) -> None:
        """See ShareChannel."""
        self._carry("to", lambda: self._container.reported(self, committed))

    def finish(self, *, is_drained: bool) -> None:
        """See ShareChannel."""
        if self._is_lost:
            raise ContainerGone("the connection was lost, or another attempt has begun")
        self._carry("to", lambda: self._container.events.append(EndedWell(self.slot, is_drained)))

    # --- the container's end ---

    def begin(self, start: ShareStart | None) -> None:
        """Answer with the share's beginning."""
        self._carry("from", lambda: setattr(self, "answer", (start,)))

    def ask_to_end(self) -> None:
        """Ask the share to end at its next commit."""
        self._carry("from", lambda: setattr(self, "_is_ending", True))

    def replace(self) -> None:
        """Let the share end: another attempt has begun."""

        def arrive() -> None:
            self._is_ending = self._is_lost = True

        self._carry("from", arrive)

    # --- the line between ---

    def _carry(self, way: str, arrive: Any) -> None:
        """Carry a message, after those before it."""
        scheduler, is_late = self._world.scheduler, self._world.faults.strikes("late-message")
        latency_s = self._world.chance.uniform(0.1, 12.0) if is_late else _LATENCY_S
        self._due_s[way] = max(self._due_s[way], scheduler.now_s + latency_s)
        if not self._is_silent:
            scheduler.after(self._due_s[way] - scheduler.now_s, lambda: None if self.is_broken else arrive())

    def cut(self, noticed_s: float) -> None:
        """Carry nothing any more; both ends notice it after this time."""
        self._is_silent = True
        self._world.scheduler.after(noticed_s, self._break)

    def _break(self) -> None:
        self.is_broken = self._is_ending = self._is_lost = True


class ShareProgram:
    """One attempt at a share."""

    def __init__(self, world: World, spark: SimulatedSpark, slot: int) -> None:
        self.container = container = spark.container
        self.line = Line(world, slot, spark)
        self.is_lost = False
        """Whether Spark takes it for lost, whatever it does."""
        self.is_amid_a_transaction = False
        self.error: GreteError | None = None
        self.process: Process = world.process(f"share {slot} #{len(world.shares)} of {container.incarnation}")
        self.process.clock.on_wait = lambda seconds_s: world.stall(self.process, seconds_s)
        self._system = ProcessSystem(world.system, world, self.process, container.incarnation)
        executor = world.chance.choice(("", "", "-2"))
        self._spec = replace(spark.epoch.spec, store_directory=spark.epoch.spec.store_directory + executor)
        self._world = world
        self._pace = world.chance.choice(_PACES)
        self._workers: TaskWorkers | None = None
        self._loop: ShareLoop | None = None
        self.process.on_end.append(self._release)
        self.process.spawn(self._main(), world.chance.uniform(0.1, world.chance.choice(_BEGIN_S)))
        world.shares.append(self)

    def _release(self) -> None:
        """Give files and locks back, as the end of a process does."""
        if self._loop is not None:
            self._loop.drop()
            self._loop.close()

    def _main(self) -> Script:
        try:
            yield from self._work()
        except GreteError as error:
            self.error = error
            raise Ended(error.exit_code, f"{type(error).__name__}: {error}") from None

    def _work(self) -> Any:
        start = yield from self._beginning()
        if start is None:
            return
        clock = self.process.clock
        self._workers = TaskWorkers(self._spec, self._system, clock)
        self._loop = ShareLoop(
            self._workers, start, clock, commit_s=0.0, records_at_most=_ROWS, is_ending=self.line.is_ending
        )
        for tasks in work(self._loop, self.line, clock, waits_s=(0.0, 0.0)):
            self._system.tasks = [self._spec.tasks[index].name for index in tasks]
            self.is_amid_a_transaction = bool(tasks)
            pace = self._pace if self._world.is_busy else 1.0
            yield Sleep((_STEP_S if tasks else _IDLE_S) * pace)
        self._loop.close()
        self._workers.close()

    def _beginning(self) -> Any:
        self.line.hello()
        until_s = self.process.clock.monotonic_s() + _ANSWER_S
        while self.line.answer is None:
            if self.line.is_broken or self.process.clock.monotonic_s() > until_s:
                raise JobError("the container does not answer")
            yield Sleep(_LOOKS_S)
        return self.line.answer[0]
