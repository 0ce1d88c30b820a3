"""Containers in the processors of a job: the launcher of the one that leads (`grete.launch.base`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from grete.clock import Clock, Deadline
from grete.coordination.cells import Cell, Cells, cell_name, last_part, remove
from grete.coordination.membership import Membership
from grete.embedded.orders import (
    ORDERS,
    REPORTS,
    Order,
    ProcessorReport,
    Wanted,
    WrittenOrder,
    decode,
    encode,
    order_cell,
    report_cell,
)
from grete.embedded.placement import ContainerPlacement, Sight
from grete.errors import CellChanged, GreteError
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.watching import WatchingThread
from grete.model.fence import leadership_of
from grete.model.ids import ContainerId

_log = logging.getLogger("grete.coordinator")
_HANDLE = "processor"
"""The orders say which one; a record without a handle would be of a container that was never started."""
_END_S = 30.0
"""How long `close` waits for containers, which are threads."""


class ProcessorsLauncher(Launcher):
    """Gives containers to processors, from a thread of its own that looks at the cells `every_s`.

    Containers go on when this process ends: the next leader finds them by the orders. While the cells do not answer,
    nothing is started or ended, and no processor is taken for gone.
    """

    def __init__(
        self, cells: Cells, membership: Membership, clock: Clock, *, leadership: int, every_s: float
    ) -> None:
        self._cells = cells
        self._membership = membership
        self._clock = clock
        self._every_s = every_s
        self._seats = ContainerPlacement(leadership)
        self._sight: Sight | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watching = WatchingThread(self._look_and_order, "processors")

    # --- called by the coordinator's loop ---

    def start(self, container: ContainerStart) -> None:
        """See Launcher. It waits for a processor while there is none for it."""
        with self._lock:
            self._seats.start(container)
        self._begin()

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher."""
        with self._lock:
            self._seats.want(container_id, Wanted.STOP)

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher. A thread cannot be killed: it is taken for ended, to be fenced off."""
        with self._lock:
            self._seats.want(container_id, Wanted.KILL)

    def exits(self) -> list[ContainerExit]:
        """See Launcher.

        Raises:
            JobError: the thread has ended by an error of its own, so nobody looks at processors any more.
        """
        self._begin()
        with self._lock:
            return self._seats.take_exits()

    def room(self) -> Sequence[ContainerId]:
        """See Launcher."""
        with self._lock:
            return () if self._sight is None else tuple(self._seats.room(self._sight))

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher."""
        return _HANDLE

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher.

        Raises:
            CoordinationUnreachable: the cells do not answer.
        """
        with self._lock:
            return handle == _HANDLE and self._seats.adopt(container, self._look())

    def abandon(self) -> None:
        """See Launcher."""
        self._closed.set()
        self._watching.join()

    def close(self) -> None:
        """See Launcher. Orders and reports are removed."""
        with self._lock:
            for known in self._seats.asked.values():
                known.wanted = Wanted.STOP
        self._begin()
        deadline = Deadline(self._clock, _END_S, pauses_s=(0.05, 0.2))
        while self._seats.asked and deadline.pause():
            pass
        self.abandon()

    # --- the thread's ---

    def _begin(self) -> None:
        self._watching.begin()

    def _look_and_order(self) -> None:
        said = ""
        while not self._closed.is_set():
            try:
                self._turn()
                said = ""
            except GreteError as error:
                level = logging.DEBUG if str(error) == said else logging.WARNING
                said = str(error)
                _log.log(level, "processors cannot be looked at: %s", error)
            self._clock.wait(self._closed, self._every_s)

    def _turn(self) -> None:
        sight = self._look()
        with self._lock:
            self._sight = sight
            orders = self._seats.look(sight)
        for order in orders:
            self._write(order)
        self._tidy(sight)

    def _look(self) -> Sight:
        cells = self._cells.read_all("")
        orders = {
            order.processor: WrittenOrder(order, cell)
            for name, cell in _below(cells, ORDERS).items()
            if (order := decode(name, cell, Order)) is not None
        }
        reports = {
            last_part(name): report
            for name, cell in _below(cells, REPORTS).items()
            if (report := decode(name, cell, ProcessorReport)) is not None
        }
        return Sight(self._membership.members(), orders, reports)

    def _write(self, order: Order) -> None:
        """Unless another leader was faster, which has a higher epoch, or a lower one and then it is tried again."""
        name = order_cell(order.processor)
        known = self._cells.read(name)
        before = None if known is None else decode(name, known, Order)
        if before is not None:
            if before.epoch > order.epoch:
                return
            is_same = (before.incarnation, before.epoch) == (order.incarnation, order.epoch)
            if is_same and before.wanted is Wanted.KILL:
                return
        try:
            self._cells.write(name, encode(order), None if known is None else known.version)
        except CellChanged as error:
            _log.debug("the order of processor %s is written at the next look: %s", order.processor, error)

    def _tidy(self, sight: Sight) -> None:
        """Forget processors that are gone, with what was theirs."""
        self._membership.remove_gone()
        for id_, written in sight.orders.items():
            if id_ not in sight.members and leadership_of(written.order.epoch) <= self._seats.leadership:
                remove(self._cells, order_cell(id_), written.cell)
        for id_, report in sight.reports.items():
            if id_ not in sight.members and leadership_of(report.epoch) <= self._seats.leadership:
                cell = self._cells.read(report_cell(id_))
                if cell is not None and decode(report_cell(id_), cell, ProcessorReport) == report:
                    remove(self._cells, report_cell(id_), cell)


def _below(cells: Mapping[str, Cell], prefix: str) -> dict[str, Cell]:
    begins = f"{cell_name(prefix)}/"
    return {name: cell for name, cell in cells.items() if name.startswith(begins)}
