"""Who stands by, in the cells of an election; and when one that stands by begins to lead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.assembly import RunOptions
from grete.assembly.stand_by import lead_when_free
from grete.assembly.submission import Submission
from grete.coordination.base import Holder, Leadership
from grete.coordination.memory import MemoryCells, MemoryCoordination, MemoryLeaderships, MemoryValues
from grete.coordination.standbys import StandbyNotice, standbys
from grete.errors import CoordinationUnreachable
from grete.model.fence import job_scope
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock

TTL_S = 15.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def notice(values: MemoryValues, clock: ManualClock, name: str) -> StandbyNotice:
    me = Holder("host", 1, name, clock.wall_ms())
    return StandbyNotice(MemoryCells(values, "job/a"), me, clock, every_s=5.0)


def names(values: MemoryValues, clock: ManualClock) -> list[str]:
    return [one.incarnation for one in standbys(MemoryCells(values, "job/a"), clock, within_s=TTL_S)]


def test_those_that_give_notice_are_listed_until_they_end_or_are_not_heard_of(clock: ManualClock) -> None:
    values = MemoryValues()
    one, two = notice(values, clock, "one"), notice(values, clock, "two")
    for _ in range(6):
        one.renew()
        two.renew()
        clock.advance(5)
    assert names(values, clock) == ["one", "two"]
    two.end()
    assert names(values, clock) == ["one"]
    clock.advance(TTL_S)
    assert names(values, clock) == []
    one.renew()
    assert names(values, clock) == ["one"]


def test_what_one_that_died_has_left_is_removed_by_the_next(clock: ManualClock) -> None:
    values = MemoryValues()
    notice(values, clock, "dead").renew()
    clock.advance(60)
    notice(values, clock, "next").renew()
    assert [name for _, name in values.cells] == ["standby/next"]


def test_a_notice_that_was_removed_by_hand_is_given_again(clock: ManualClock) -> None:
    values = MemoryValues()
    one = notice(values, clock, "one")
    one.renew()
    values.cells.clear()
    for _ in range(2):
        clock.advance(5)
        one.renew()
    assert names(values, clock) == ["one"]


class Away(MemoryCoordination):
    """Its service does not answer for a while."""

    unanswered = 3

    def leading_epoch(self, scope: str) -> int | None:
        if self.unanswered:
            self.unanswered -= 1
            raise CoordinationUnreachable("no server answers")
        return super().leading_epoch(scope)


class Standing:
    """A submission that stands by, with an election in memory."""

    def __init__(self, home: Path, clock: ManualClock, stack: ExitStack) -> None:
        self.clock = clock
        self.shared = MemoryLeaderships()
        path = home / "orders.properties"
        path.write_text("job.name=orders\ntask.class=orders:Orders\ntask.inputs=local.in\n")
        options = RunOptions(config_paths=[str(path)], stands_by=True)
        self.submission = Submission(options, home, clock, stack)
        self.submission.open()
        self.submission.coordination = self.contender()
        self.scope = job_scope(self.submission.job)
        self.looks = 0

    def contender(self, kind: type[MemoryCoordination] = MemoryCoordination) -> MemoryCoordination:
        return kind(self.clock, leaderships=self.shared, ttl_s=TTL_S)

    def lead(
        self, led: Leadership | None = None, *, has_stepped_down: bool = False, at_most: int = 1000
    ) -> Leadership | None:
        def wait(seconds: float) -> bool:
            self.looks += 1
            self.clock.advance(seconds)
            return self.looks >= at_most

        return lead_when_free(self.submission, self.clock, led, wait, has_stepped_down=has_stepped_down)


@pytest.fixture
def standing(home: Path, system: LocalSystem, clock: ManualClock) -> Iterator[Standing]:
    system.create_stream(StreamSpec("in", 1))
    with ExitStack() as stack:
        yield Standing(home, clock, stack)


def test_where_no_coordinator_leads_it_leads_at_once(standing: Standing) -> None:
    assert standing.lead() is not None
    assert standing.looks == 0
    assert standing.submission.waited_for is None


def test_a_leader_that_is_silent_is_succeeded_after_its_lease_and_not_before(standing: Standing) -> None:
    silent = standing.contender().campaign(standing.scope)
    began_s = standing.clock.monotonic_s()
    leading = standing.lead()
    assert leading is not None
    assert leading.epoch > silent.epoch
    assert TTL_S <= standing.clock.monotonic_s() - began_s <= TTL_S * 1.05
    assert standing.submission.waited_for == silent.epoch


def test_while_the_service_does_not_answer_it_waits(standing: Standing) -> None:
    standing.submission.coordination = standing.contender(Away)
    assert standing.lead() is not None
    assert standing.looks == 3


def test_one_that_has_stepped_down_lets_others_begin_for_a_lease(standing: Standing) -> None:
    led = standing.submission.coordination.campaign(standing.scope)
    standing.submission.coordination.release(led)
    began_s = standing.clock.monotonic_s()
    assert standing.lead(led, has_stepped_down=True) is not None
    assert standing.clock.monotonic_s() - began_s >= TTL_S


def test_one_that_was_asked_to_end_does_not_lead(standing: Standing) -> None:
    standing.contender().campaign(standing.scope)
    assert standing.lead(at_most=5) is None
    assert dict(standing.submission.coordination.cells(standing.scope).read_all("")) == {}
