"""Which processor runs which container: pure, as all decisions. The launcher reads the cells, and writes orders.

Everything is derived from what the cells say now and what the coordinator has asked for, so that a successor goes on
from there. A processor runs one container at a time. It keeps its number, the container's id, while it lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grete.coordination.membership import Member
from grete.embedded.orders import Order, ProcessorReport, Wanted, WrittenOrder
from grete.launch.base import ContainerExit, ContainerStart
from grete.model.ending import ExitCode
from grete.model.fence import leadership_of
from grete.model.ids import ContainerId

_KILLED = -9


@dataclass(frozen=True, slots=True)
class Sight:
    """The cells as they were read: living processors, orders and reports, by processor id."""

    members: Mapping[str, Member]
    orders: Mapping[str, WrittenOrder]
    reports: Mapping[str, ProcessorReport]

    def order(self, member: Member) -> Order | None:
        """The order of this incarnation."""
        written = self.orders.get(member.id)
        return None if written is None or written.order.incarnation != member.incarnation else written.order

    def report(self, member: Member) -> ProcessorReport | None:
        """The report of this incarnation."""
        report = self.reports.get(member.id)
        return None if report is None or report.incarnation != member.incarnation else report

    def is_busy(self, member: Member) -> bool:
        """Whether it was ordered to run a container, and has not said that this one has ended."""
        order, report = self.order(member), self.report(member)
        return order is not None and (report is None or report.epoch < order.epoch)

    def leaves(self, member: Member) -> bool:
        """Whether it will run no other container."""
        report = self.report(member)
        return report is not None and report.leaves


@dataclass(slots=True)
class RequestedContainer:
    """A container that the coordinator wants; `member` runs it, None while there is none for it."""

    start: ContainerStart
    member: Member | None = None
    wanted: Wanted = Wanted.RUN

    def order(self) -> Order | None:
        """The order that its processor has to have."""
        if self.member is None:
            return None
        start, member = self.start, self.member
        return Order(
            *(member.id, member.incarnation, start.container_id, start.epoch, self.wanted, start.environment)
        )


@dataclass(slots=True)
class ContainerPlacement:
    """The containers and processors of one leadership, whose epoch is `leadership`."""

    leadership: int
    asked: dict[ContainerId, RequestedContainer] = field(default_factory=dict)
    numbers: dict[str, ContainerId] = field(default_factory=dict)
    """By incarnation of a processor."""
    _exits: list[ContainerExit] = field(default_factory=list)

    def start(self, start: ContainerStart) -> None:
        """Want a container; the same or a lower epoch again changes nothing, a higher one takes its place."""
        known = self.asked.get(start.container_id)
        if known is not None and known.start.epoch >= start.epoch:
            return
        if known is not None:
            self._end(known, _KILLED, "another incarnation takes its place", may_live=True)
        self.asked[start.container_id] = RequestedContainer(start)

    def want(self, container: ContainerId, wanted: Wanted) -> None:
        """Want its end. What is killed counts as ended at once: it is fenced off, and a thread may not end."""
        known = self.asked.get(container)
        if known is None:
            return
        if known.member is None:
            self._end(known, ExitCode.STOPPED, "", left=False)
        elif wanted is Wanted.KILL:
            self._end(known, _KILLED, f"processor {known.member.id} was to end it at once", may_live=True)
        else:
            known.wanted = wanted

    def adopt(self, start: ContainerStart, sight: Sight) -> bool:
        """Take over a container that an earlier leader has ordered, unless its processor is gone.

        One that has ended is taken over too, so that its exit is reported.
        """
        for member in sight.members.values():
            order = sight.order(member)
            if order is not None and (order.container, order.epoch) == (start.container_id, start.epoch):
                adopted = ContainerStart(start.container_id, start.epoch, order.environment)
                self.asked[start.container_id] = RequestedContainer(adopted, member)
                return True
        return False

    def take_exits(self) -> list[ContainerExit]:
        """The exits since the last call."""
        found, self._exits = self._exits, []
        return found

    def look(self, sight: Sight) -> list[Order]:
        """Take in what the cells say; returns the orders that are to be written."""
        self._number(sight)
        for known in list(self.asked.values()):
            if known.member is not None:
                self._look_at(known, known.member, sight)
        self._place(sight)
        return [*self._orders(sight), *self._kills(sight)]

    def room(self, sight: Sight) -> Sequence[ContainerId]:
        """A container for each processor that can run one: not those that were to end theirs and do not."""
        wanted = {known.member.incarnation for known in self.asked.values() if known.member is not None}
        able = [
            self.numbers[one.incarnation]
            for one in sight.members.values()
            if one.incarnation in self.numbers
            and not sight.leaves(one)
            and (one.incarnation in wanted or not sight.is_busy(one))
        ]
        return sorted(able, key=int)

    # --- what follows from a look ---

    def _number(self, sight: Sight) -> None:
        """Each processor has the number of the container that it runs for us, else of its last one, where that is
        free, else the lowest free one.

        Two may have had the same one last: one that was killed and does not end, and the one that was given it then.
        """
        living = {one.incarnation for one in sight.members.values()}
        self.numbers = {one: number for one, number in self.numbers.items() if one in living}
        for known in self.asked.values():
            if known.member is not None and known.member.incarnation in living:
                self._give_number(known.member, known.start.container_id)
        members = sorted(
            sight.members.values(), key=lambda one: (not sight.is_busy(one), one.since_ms, one.id)
        )
        for member in members:
            taken, order = set(self.numbers.values()), sight.order(member)
            if member.incarnation in self.numbers:
                continue
            if order is not None and order.container not in taken:
                self.numbers[member.incarnation] = order.container
                continue
            free = (ContainerId(str(i)) for i in range(len(members) + len(taken)))
            self.numbers[member.incarnation] = next(number for number in free if number not in taken)

    def _look_at(self, known: RequestedContainer, member: Member, sight: Sight) -> None:
        report = sight.reports.get(member.id)
        living = sight.members.get(member.id)
        if (
            report is not None
            and report.incarnation == member.incarnation
            and report.epoch == known.start.epoch
        ):
            is_failure = report.exit_code not in (ExitCode.OK, ExitCode.STOPPED)
            left = report.leaves and not is_failure
            self._end(known, report.exit_code, report.reason, place=report.place, left=left)
        elif living is None or living.incarnation != member.incarnation:
            self._end(known, _KILLED, f"processor {member.id} is gone", left=True, may_live=True)

    def _end(
        self,
        known: RequestedContainer,
        code: int,
        reason: str,
        *,
        place: str = "",
        left: bool = False,
        may_live: bool = False,
    ) -> None:
        id_, epoch = known.start.container_id, known.start.epoch
        self._exits.append(ContainerExit(id_, epoch, code, reason, place, left=left, may_live=may_live))
        del self.asked[id_]

    def _place(self, sight: Sight) -> None:
        """Give each container without a processor to the one of its number, else to one that has none to run."""
        taken = {known.member.incarnation for known in self.asked.values() if known.member is not None}
        free = [
            one
            for one in sight.members.values()
            if one.incarnation not in taken and not sight.is_busy(one) and not sight.leaves(one)
        ]
        waiting = [known for _, known in sorted(self.asked.items()) if known.member is None]
        for known in waiting:
            own = next((one for one in free if self._number_of(one) == known.start.container_id), None)
            spare = next((one for one in free if self._number_of(one) not in self.asked), None)
            chosen = own or spare
            if chosen is not None:
                known.member = chosen
                free.remove(chosen)
                self._give_number(chosen, known.start.container_id)

    def _number_of(self, member: Member) -> ContainerId:
        return self.numbers[member.incarnation]

    def _give_number(self, member: Member, number: ContainerId) -> None:
        """The processor that has had the number without its container gets the other one's for it, if any."""
        before = self.numbers.get(member.incarnation)
        if before == number:
            return
        other = next((one for one, its in self.numbers.items() if its == number), None)
        if other is not None and before is not None:
            self.numbers[other] = before
        elif other is not None:
            del self.numbers[other]
        self.numbers[member.incarnation] = number

    def _orders(self, sight: Sight) -> Iterator[Order]:
        for known in self.asked.values():
            order = known.order()
            written = None if order is None else sight.orders.get(order.processor)
            if order is None or (written is not None and written.order == order):
                continue
            if written is None or written.order.epoch <= order.epoch:
                yield order

    def _kills(self, sight: Sight) -> Iterator[Order]:
        """End what runs and is not wanted: killed, or ordered by a leader before us that could not note it."""
        wanted = {known.start.epoch for known in self.asked.values()}
        for member in sight.members.values():
            order = sight.order(member)
            if order is None or not sight.is_busy(member) or order.wanted is Wanted.KILL:
                continue
            if order.epoch not in wanted and leadership_of(order.epoch) <= self.leadership:
                yield Order(
                    *(order.processor, order.incarnation, order.container, order.epoch, Wanted.KILL),
                    order.environment,
                )
