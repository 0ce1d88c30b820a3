"""A processor as a member of its job: it renews its membership, follows its leader's orders, and reports ends."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grete import errors
from grete.clock import Clock, Deadline
from grete.container.main_loop import OnState
from grete.coordination.cells import Cells, change
from grete.coordination.membership import Admission, Member, Membership
from grete.embedded.orders import (
    Order,
    ProcessorReport,
    Wanted,
    decode,
    encode,
    order_cell,
    orders_of,
    report_cell,
)
from grete.embedded.place import ANYWHERE, ProcessorPlace
from grete.environment import IN_PROCESS
from grete.errors import CoordinationUnreachable, GreteError, IdTaken, MembersElsewhere
from grete.model.ending import ContainerEnd, ExitCode, Failure, failure_of

_log = logging.getLogger("grete.processor")

RunContainer = Callable[[Mapping[str, str], threading.Event, OnState], ContainerEnd]
"""Runs a container in this process, with its environment, until it ends or is asked to stop."""
_NO_FAILURE = (ExitCode.OK, ExitCode.STOPPED, ExitCode.FENCED)
_RENEWALS_IN_TTL = 3
_END_S = 60.0
_KNOWN_TTLS = 2.0


@dataclass(slots=True)
class Running:
    """A container in its thread."""

    order: Order
    thread: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    end: ContainerEnd | None = None
    """None while it runs."""


@dataclass(frozen=True, slots=True)
class Farewell:
    """The other members when a processor had left, and until when it waits to know which of them live."""

    others: Mapping[str, Member]
    deadline: Deadline


class Agent:
    """The membership of one processor, and its container. `run` is a thread's own; `stop` may be called from any.

    `on_state` is called with each state of its container, from the container's thread; `idle` when it has none.
    """

    def __init__(
        self,
        id: str,
        cells: Cells,
        clock: Clock,
        run_container: RunContainer,
        on_state: OnState,
        *,
        ttl_s: float,
        every_s: float,
        place: ProcessorPlace = ANYWHERE,
    ) -> None:
        self.id = id
        self._cells = cells
        self._membership = Membership(cells, clock, ttl_s=ttl_s)
        self._clock = clock
        self._run_container = run_container
        self._on_state = on_state
        self._ttl_s = ttl_s
        self._every_s = every_s
        self._place = place
        self._admission: Admission | None = None
        self._renew_at_s = 0.0
        self._running: Running | None = None
        self._last_epoch = 0
        self._unreported: ProcessorReport | None = None
        self._stopping = threading.Event()
        self._said = ""
        self.failure: Failure | None = None
        """The error that the container ended with, which ends the processor."""
        self._left: Farewell | None = None
        self.is_last = False
        """Whether no other processor lived when this one had left."""

    def join(self, *, patiently: bool = True) -> None:
        """Become a member. One that is in the way and died is waited for: that is a TTL and a bit.

        So is a service that does not answer: of processors that started at once on a busy machine, all ended since
        the topic of their cells, which the first had just made, had no leader yet.

        Raises:
            IdTaken: a living processor has this id.
            MembersElsewhere: living processors are on another machine, or have another home.
            CoordinationUnreachable: the service has not answered for as long.
        """
        deadline = Deadline(self._clock, 1.2 * self._ttl_s if patiently else 0.0)
        incarnation, said = uuid.uuid4().hex, ""
        while True:
            try:
                self._admission = self._admitted(incarnation)
                break
            except (IdTaken, MembersElsewhere, CoordinationUnreachable) as error:
                if not deadline.pause():
                    raise
                if str(error) != said:
                    said = str(error)
                    _log.info("processor %s waits to join: %s", self.id, error)
        self._renew_at_s = self._clock.monotonic_s() + self._ttl_s / _RENEWALS_IN_TTL

    def _admitted(self, incarnation: str) -> Admission:
        """Looks before and after: of two that join at once, one at least sees the other."""
        self._place.check(self.id, self._membership.members())
        admission = self._membership.join(self.id, self._place.metadata(), incarnation=incarnation)
        try:
            self._place.check(self.id, self._membership.members())
        except MembersElsewhere:
            self._membership.leave(admission)
            raise
        return admission

    def stop(self) -> None:
        """Let the container end at a batch boundary, then leave the job; `run` returns."""
        self._stopping.set()

    def run(self) -> None:
        """Until it was asked to stop, or its container has failed, and the processor has left.

        Raises:
            GreteError: the coordination cells cannot be used, whether their service answers or not.
        """
        while not self.look():
            pass

    def await_container(self) -> None:
        """Wait until the container that was asked to end, for whatever reason, is done with its batch."""
        if self._running is not None and self._running.thread is not None:
            self._running.thread.join(_END_S)

    # --- one look ---

    def look(self) -> bool:
        """Look once at orders, container and membership, and wait for a moment; returns whether it has left.

        Raises:
            GreteError: the coordination cells cannot be used, whether their service answers or not.
        """
        try:
            has_left = self._turn()
            self._said = ""
            return has_left
        except GreteError as error:
            if not error.may_pass:
                self._end_container()
                raise
            level = logging.DEBUG if str(error) == self._said else logging.WARNING
            self._said = str(error)
            _log.log(level, "processor %s waits for its coordination: %s", self.id, error)
            if self._is_over():
                self._end_container()  # the others may have given the processor up
                if self._stopping.is_set() and self._running is None:
                    return True
            self._rest()
            return False

    def _rest(self) -> None:
        self._clock.wait(threading.Event(), self._every_s)

    def _turn(self) -> bool:
        """Returns whether the processor has left."""
        if self._left is not None:
            return self._knows_who_is_left(self._left)
        self._notice_end()
        if not self._stay():
            return self._stopping.is_set() and self._running is None
        self._send_report()
        if self._stopping.is_set():
            return self._leave_when_free()
        order = self._order()
        if order is not None:
            self._follow(order)
        self._pause()
        return False

    def _stay(self) -> bool:
        """Whether it is a member, renewed where that was due; one that was given up joins again when it is free."""
        now_s = self._clock.monotonic_s()
        if self._admission is not None and now_s < self._renew_at_s:
            return True
        if self._admission is not None:
            self._admission = self._membership.renew(self._admission)
            self._renew_at_s = now_s + self._ttl_s / _RENEWALS_IN_TTL
        if self._admission is not None:
            return True
        if self._running is not None:
            _log.warning("processor %s was given up by the others: its container ends", self.id)
            self._running.stop.set()
            self._rest()
            return False
        self._unreported = None
        if self._stopping.is_set():
            return False
        self.join()
        return True

    def _order(self) -> Order | None:
        """The order for this incarnation, unless it was followed to its end."""
        name = order_cell(self.id)
        cell = self._cells.read(name)
        order = None if cell is None else decode(name, cell, Order)
        if order is None or self._admission is None:
            return None
        return order if order.incarnation == self._admission.member.incarnation else None

    def _follow(self, order: Order) -> None:
        running = self._running
        if running is not None:
            if order.epoch > running.order.epoch or order.wanted is not Wanted.RUN:
                running.stop.set()
            return
        if order.epoch <= self._last_epoch:
            return
        self._last_epoch = order.epoch
        if order.wanted is Wanted.RUN:
            self._start(order)
        else:
            self._unreported = _report(order, ContainerEnd(ExitCode.STOPPED))

    def _start(self, order: Order) -> None:
        running = self._running = Running(order)
        name = f"container-{order.container}"
        running.thread = threading.Thread(target=self._work, args=(running,), name=name, daemon=True)
        running.thread.start()

    def _work(self, running: Running) -> None:
        environment = {**running.order.environment, IN_PROCESS: "1"}
        try:
            end = self._run_container(environment, running.stop, self._on_state)
        except Exception as error:  # noqa: BLE001 - a thread begins here; its end must be reported like any other
            _log.exception("container %s crashed", running.order.container)
            end = ContainerEnd(ExitCode.FAILED, failure_of(error))
        running.end = end

    def _notice_end(self) -> None:
        running = self._running
        if running is None or running.end is None:
            return
        if running.thread is not None:
            running.thread.join()
        self._running = None
        end = running.end
        if int(end) not in _NO_FAILURE and not _may_pass(end):
            self.failure = end.failure or Failure("ContainerFailed", f"it ended with code {int(end)}")
            self._stopping.set()
        self._unreported = _report(running.order, end, leaves=self._stopping.is_set())
        self._on_state("idle")

    def _send_report(self) -> None:
        """Tell the leader of an end, as long as this is the incarnation that the order was for."""
        report, admission = self._unreported, self._admission
        if report is None or admission is None:
            return
        if report.incarnation == admission.member.incarnation:
            self._write(report)
        self._unreported = None

    def _write(self, report: ProcessorReport) -> None:
        encoded = encode(report)
        change(self._cells, report_cell(self.id), lambda known: None if known == encoded else encoded)

    def _pause(self) -> None:
        """Until there is another order, the container has ended, or a look is due."""
        prefix = orders_of(self.id)
        deadline = Deadline(self._clock, 4 * self._every_s, pauses_s=(self._every_s, self._every_s))
        seen = self._cells.read_all(prefix)
        while not deadline.is_over and not self._stopping.is_set():
            if self._running is not None and self._running.end is not None:
                return
            pause = Deadline(self._clock, self._every_s, pauses_s=(self._every_s, self._every_s))
            if self._cells.wait(prefix, seen, pause) != seen:
                return

    # --- the end ---

    def _leave_when_free(self) -> bool:
        admission = self._admission
        if self._running is not None:
            self._running.stop.set()
            self._rest()
            return False
        if admission is None:
            return True
        self._membership.leave(admission)
        self._admission = None
        self._left = Farewell(self._others(), Deadline(self._clock, _KNOWN_TTLS * self._ttl_s))
        return self._knows_who_is_left(self._left)

    def _knows_who_is_left(self, left: Farewell) -> bool:
        """Sets `is_last`, once it is known: another one that lives renews soon, and one that has died goes.

        A leader that left one behind that had just been killed took it for its successor, and the job had none.
        """
        now = self._others()
        if now and all(left.others.get(id) == one for id, one in now.items()) and not left.deadline.is_over:
            self._rest()
            return False
        self.is_last = not now
        return True

    def _others(self) -> dict[str, Member]:
        return {id: one for id, one in self._membership.members().items() if id != self.id}

    def _is_over(self) -> bool:
        if self._left is not None:
            return self._left.deadline.is_over
        admission = self._admission
        return admission is None or self._clock.monotonic_s() >= admission.valid_until_s

    def _end_container(self) -> None:
        if self._running is not None:
            self._running.stop.set()


def _report(order: Order, end: ContainerEnd, *, leaves: bool = False) -> ProcessorReport:
    failure = end.failure
    return ProcessorReport(
        *(order.processor, order.incarnation, order.container, order.epoch, int(end)),
        reason="" if failure is None else str(failure),
        place="" if failure is None else failure.place,
        leaves=leaves,
    )


def _may_pass(end: ContainerEnd) -> bool:
    """Whether a store or the coordinator did not answer, which the leader sees to by starting it again."""
    kind = None if end.failure is None else getattr(errors, end.failure.type, None)
    if not (isinstance(kind, type) and issubclass(kind, GreteError)):
        return False
    return kind.may_pass or issubclass(kind, errors.CoordinatorUnavailable)
