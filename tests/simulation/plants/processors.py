"""Mistakes of stream processors: in what they do, in orders and reports, and in what their leader concludes."""

from __future__ import annotations

from typing import Any

from grete.coordination.membership import Member
from grete.embedded.agent import Agent, _report
from grete.embedded.launcher import ProcessorsLauncher
from grete.embedded.orders import Order, Wanted, decode, encode, order_cell
from grete.embedded.placement import _KILLED, ContainerPlacement, RequestedContainer, Sight
from grete.errors import CellChanged
from grete.model.ending import ContainerEnd, ExitCode
from grete.model.ids import ContainerId
from grete_workbench.simulator.plants import Plant, Replaced


def _container_forgotten(replaced: Replaced) -> None:
    stay = Agent._stay

    def joined_again(self: Agent) -> bool:
        if self._admission is None:
            self._running = None
        return stay(self)

    replaced(Agent, "_stay", joined_again)


def _any_order_followed(replaced: Replaced) -> None:
    def order(self: Agent) -> Order | None:
        name = order_cell(self.id)
        cell = self._cells.read(name)
        return None if cell is None else decode(name, cell, Order)

    replaced(Agent, "_order", order)


def _followed_twice(replaced: Replaced) -> None:
    follow = Agent._follow

    def again(self: Agent, order: Order) -> None:
        self._last_epoch = 0
        follow(self, order)

    replaced(Agent, "_follow", again)


def _reported_too_early(replaced: Replaced) -> None:
    follow = Agent._follow

    def reported(self: Agent, order: Order) -> None:
        running = self._running
        follow(self, order)
        if running is not None and running.stop.is_set():
            self._unreported = _report(running.order, ContainerEnd(ExitCode.STOPPED))

    replaced(Agent, "_follow", reported)


def _left_too_early(replaced: Replaced) -> None:
    leave = Agent._leave_when_free

    def left(self: Agent) -> bool:
        if self._running is not None:
            self._running.stop.set()
            self._running = None
        return leave(self)

    replaced(Agent, "_leave_when_free", left)


def _never_gives_up(replaced: Replaced) -> None:
    end = ContainerPlacement._end

    def believed(
        self: ContainerPlacement, known: RequestedContainer, code: int, reason: str, **how: Any
    ) -> None:
        end(
            self,
            known,
            code,
            reason,
            **{**how, "may_live": how.get("may_live", False) and "gone" not in reason},
        )

    replaced(ContainerPlacement, "_end", believed)


def _killed_is_ended(replaced: Replaced) -> None:
    want = ContainerPlacement.want

    def killed(self: ContainerPlacement, container: ContainerId, wanted: Wanted) -> None:
        known = self.asked.get(container)
        if known is not None and known.member is not None and wanted is Wanted.KILL:
            self._end(known, _KILLED, "it was to end at once")
        else:
            want(self, container, wanted)

    replaced(ContainerPlacement, "want", killed)


def _any_report_counts(replaced: Replaced) -> None:
    look_at = ContainerPlacement._look_at

    def counted(self: ContainerPlacement, known: RequestedContainer, member: Member, sight: Sight) -> None:
        report = sight.reports.get(member.id)
        if report is not None:
            self._end(known, report.exit_code, report.reason)
        else:
            look_at(self, known, member, sight)

    replaced(ContainerPlacement, "_look_at", counted)


def _orders_overwritten(replaced: Replaced) -> None:
    def orders(self: ContainerPlacement, sight: Sight) -> Any:
        for known in self.asked.values():
            order = known.order()
            written = None if order is None else sight.orders.get(order.processor)
            if order is not None and (written is None or written.order != order):
                yield order

    def write(self: ProcessorsLauncher, order: Order) -> None:
        name = order_cell(order.processor)
        known = self._cells.read(name)
        try:
            self._cells.write(name, encode(order), None if known is None else known.version)
        except CellChanged:
            return

    replaced(ContainerPlacement, "_orders", orders)
    replaced(ProcessorsLauncher, "_write", write)


def _never_adopted(replaced: Replaced) -> None:
    replaced(ContainerPlacement, "adopt", lambda self, start, sight: False)


def _busy_is_free(replaced: Replaced) -> None:
    """A processor is given another container while it runs one, and follows the order at once."""
    follow = Agent._follow

    def at_once(self: Agent, order: Order) -> None:
        if self._running is not None and order.epoch > self._running.order.epoch:
            self._running.stop.set()
            self._running = None
        follow(self, order)

    replaced(Sight, "is_busy", lambda self, member: False)
    replaced(Agent, "_follow", at_once)


def _plant(what: str, apply: Any, *emphasis: str, seeds: int = 500) -> Plant:
    return Plant(what, apply, emphasis, seeds=seeds, embedded=True)


PLANTS = {
    "processor-forgets-its-container": _plant(
        "a processor that was given up joins again while its container runs",
        _container_forgotten,
        "pause-container",
    ),
    "order-of-the-one-before": _plant(
        "a processor follows the order of the one of its id that died", _any_order_followed, "kill-container"
    ),
    "order-followed-twice": _plant(
        "an order is followed again when its container has ended", _followed_twice, "container-request"
    ),
    "reported-before-the-end": _plant(
        "a processor reports the end of a container that it has only asked to end",
        _reported_too_early,
        "container-request",
        "pause-container",
    ),
    "left-before-the-end": _plant(
        "a processor leaves while its container still commits its last batch", _left_too_early, "leave"
    ),
    "gone-is-not-fenced": _plant(
        "the container of a processor that is not heard of is taken for ended",
        _never_gives_up,
        "pause-container",
    ),
    "killed-thread-is-not-fenced": _plant(
        "a container that was to end at once is taken for ended",
        _killed_is_ended,
        "container-request",
        "pause-container",
    ),
    "report-of-another-container": _plant(
        "the report of a processor's last container ends its next one",
        _any_report_counts,
        "container-request",
    ),
    "order-of-a-later-leader-overwritten": _plant(
        "a leader that was succeeded writes its orders over those of its successor",
        _orders_overwritten,
        "leader-lost",
        "pause-coordinator",
        "container-request",
        "take-over",
        "join",
        seeds=2_000,
    ),
    "processors-never-adopted": _plant(
        "a new leader has all containers of the one before started again", _never_adopted, "kill-coordinator"
    ),
    "busy-processor-taken-for-free": _plant(
        "a processor begins a container before its last one has ended",
        _busy_is_free,
        "container-request",
        "leader-lost",
    ),
}
