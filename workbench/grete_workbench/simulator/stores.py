"""One process's handles on the stores of the world: the real stores, reached through a line that can break."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grete.coordination.base import Coordination, Holder, Leadership
from grete.coordination.cells import Cell, Cells
from grete.embedded.orders import ORDERS, Order, decode
from grete.errors import CoordinationUnreachable, LogError
from grete.keyed_log.base import Entry, Fence, KeyedLog, Record
from grete.model.ids import TaskName
from grete.systems.commit_group import CommitGroup
from grete.systems.local.system import LocalSystem
from grete_workbench.simulator.ledger import Violation
from grete_workbench.simulator.scheduler import Process

if TYPE_CHECKING:
    from grete_workbench.simulator.world import World


class ProcessLog(KeyedLog):
    """A process's handle on a keyed log."""

    def __init__(self, log: KeyedLog, world: World, process: Process) -> None:
        self._log = log
        self._world = world
        self._process = process

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        """See KeyedLog."""
        with self._world.write(self._process):
            self._world.watch.is_dirty = True
            return self._log.append(entries, fence=fence, append_id=append_id)

    def resolve(self, append_id: str) -> int | None:
        """See KeyedLog."""
        return self._log.resolve(append_id)

    def raise_fence(self, fence: Fence) -> None:
        """See KeyedLog."""
        with self._world.write(self._process):
            self._log.raise_fence(fence)
            self._world.watch.raised(fence.epoch)

    def claim(self, fence: Fence) -> None:
        """See KeyedLog."""
        with self._world.write(self._process):
            self._log.claim(fence)
            self._world.watch.raised(fence.epoch)

    def read(self, after: int = -1) -> Iterator[Record]:
        """See KeyedLog."""
        return self._log.read(after)

    def end(self) -> int:
        """See KeyedLog."""
        return self._log.end()

    def wait(self, after: int, timeout_s: float) -> bool:
        """See KeyedLog."""
        return self._log.end() > after

    def compact(self) -> int:
        """See KeyedLog."""
        return self._log.compact()

    def close(self) -> None:
        """The log belongs to the world."""


class ProcessSystem(LocalSystem):
    """A process's handle on streams and checkpoints. `tasks` are those whose share is committed next."""

    def __init__(self, system: LocalSystem, world: World, process: Process, writer: str = "") -> None:
        """`writer` is the container's incarnation, of a process of another name."""
        self.__dict__.update(system.__dict__)  # the same open file, with this process's line to it
        self._world = world
        self._process = process
        self._writer = writer or process.name
        self.tasks: Sequence[TaskName] = ()

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """See TransactionalStore."""
        with self._world.write(self._process):
            self._world.ledger.is_dirty = True
            ends = super().commit(group)
            for task in self.tasks:
                self._world.ledger.commits(task, self._writer)
            return ends

    def take_slot(self, fences: Sequence[Fence], scope: str) -> Fence:
        """See SlotStore."""
        with self._world.write(self._process):
            return super().take_slot(fences, scope)

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """See TransactionalStore."""
        with self._world.write(self._process):
            super().raise_fence(fences)

    def close(self) -> None:
        """The file belongs to the world."""


class ProcessCoordination(Coordination):
    """A process's handle on leader election; remembers what it was given last."""

    def __init__(self, coordination: Coordination, world: World, process: Process) -> None:
        self._coordination = coordination
        self._world = world
        self._process = process
        self.leadership: Leadership | None = None
        process.on_write.append(self._begins)
        self._was_valid = False

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination."""
        with self._world.write(self._process):
            self.leadership = self._coordination.campaign(scope, take_over=take_over, epoch_floor=epoch_floor)
        return self.leadership

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination."""
        with self._world.write(self._process):
            renewed = self._coordination.renew(leadership)
        self.leadership = renewed  # a process that gets no answer goes by what it knows
        return renewed

    def release(self, leadership: Leadership) -> None:
        """See Coordination."""
        self._world.conduct.releases(self)
        self.leadership = None  # who gives up does not act any more
        with self._world.write(self._process):
            self._coordination.release(leadership)

    def forget(self, leadership: Leadership) -> None:
        """See Coordination."""
        self.leadership = None
        with self._world.write(self._process):
            self._coordination.forget(leadership)

    def holder(self, scope: str) -> Holder | None:
        """See Coordination."""
        return self._coordination.holder(scope)

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination."""
        return self._coordination.leading_epoch(scope)

    def is_silent(self, scope: str) -> bool:
        """See Coordination."""
        return self._coordination.is_silent(scope)

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return self._coordination.cells(scope)

    def close(self) -> None:
        """See Coordination."""

    def _begins(self) -> None:
        self._was_valid = self.is_valid()

    def may_act(self) -> bool:
        """Whether it may act now, or might when it began the write that it has just done."""
        return self.is_valid() or self._was_valid

    def is_valid(self) -> bool:
        """Whether the process may act now, by its own clock."""
        return (
            self.leadership is not None and self._process.clock.monotonic_s() < self.leadership.valid_until_s
        )


class ProcessCells(Cells):
    """A process's handle on coordination cells, whose service may not answer for a while."""

    def __init__(self, cells: Cells, world: World, process: Process) -> None:
        self._cells = cells
        self._world = world
        self._process = process

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        self._ask()
        return self._cells.read(name)

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        self._ask()
        return self._cells.read_all(prefix)

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells.

        Raises:
            Violation: an order of an earlier leader takes the place of a later one's.
        """
        with self._change():
            known = self._cells.read(name)
            written = self._cells.write(name, value, expected)
            if known is not None and name.startswith(f"{ORDERS}/"):
                before, after = decode(name, known, Order), decode(name, written, Order)
                assert before is not None, name
                assert after is not None, name
                if before.epoch > after.epoch:
                    raise Violation("the order of a later launch stays", f"{name}: {after} after {before}")
            return written

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        with self._change():
            self._cells.delete(name, expected)

    def close(self) -> None:
        """The cells belong to the world."""

    def _ask(self) -> None:
        if self._world.cells_are_silent:
            raise CoordinationUnreachable("simulated: the coordination cells do not answer")

    @contextmanager
    def _change(self) -> Iterator[None]:
        self._ask()
        try:
            with self._world.write(self._process):
                yield
        except LogError as error:
            raise CoordinationUnreachable(f"simulated: {error}") from error
