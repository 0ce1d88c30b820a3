"""Members that stand by for a leader; and when one that stands by begins to lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.assembly import RunOptions
from grete.assembly.stand_by import lead_when_free
from grete.assembly.submission import Submission
from grete.coordination.base import Leadership, Look
from grete.coordination.cells import Cell
from grete.coordination.membership import Attendance, Membership, standbys
from grete.coordination.memory import MemoryCells, MemoryCoordination, MemoryLeaderships, MemoryValues
from grete.errors import CoordinationUnreachable
from grete.metadata.job_state import Request, RequestKind, write_request
from grete.model.fence import job_scope
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock

TTL_S = 15.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def standby(values: MemoryValues, clock: ManualClock) -> Attendance:
    return Attendance(standbys(MemoryCells(values, "job/a"), clock, lease_s=TTL_S), clock)


def listed(values: MemoryValues, clock: ManualClock) -> list[str]:
    return [one.id for one in standbys(MemoryCells(values, "job/a"), clock, lease_s=TTL_S).heard_of()]


def test_those_that_stand_by_are_listed_until_they_leave_or_are_not_heard_of(clock: ManualClock) -> None:
    values = MemoryValues()
    one = standby(values, clock)
    one.keep()
    [first] = listed(values, clock)
    two = standby(values, clock)
    for _ in range(12):
        clock.advance(5)
        one.keep()
        two.keep()
    assert listed(values, clock)[0] == first
    assert len(listed(values, clock)) == 2
    two.end()
    assert listed(values, clock) == [first]
    clock.advance(2 * TTL_S + 0.1)
    assert listed(values, clock) == []
    one.keep()
    assert listed(values, clock) == [first]


def test_a_member_that_died_is_removed_by_another_that_has_seen_it_stand_still(clock: ManualClock) -> None:
    values = MemoryValues()
    dead, living = standby(values, clock), standby(values, clock)
    dead.keep()
    for _ in range(13):
        living.keep()
        clock.advance(5)
    assert len(values.cells) == 1
    assert len(listed(values, clock)) == 1


class LateCells(MemoryCells):
    """Answers say how it was when they were asked for, and come `late_s` later."""

    def __init__(self, values: MemoryValues, clock: ManualClock) -> None:
        super().__init__(values, "job/a")
        self._clock = clock
        self.late_s = 0.0

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        found = super().read_all(prefix)
        self._clock.advance(self.late_s)
        return found


def test_an_answer_that_comes_late_lets_nobody_be_taken_for_gone(clock: ManualClock) -> None:
    """As of a service that stands still: the member's renewal waits there as long as the question about it."""
    values = MemoryValues()
    member = Membership(MemoryCells(values, "job/a"), clock, ttl_s=TTL_S)
    admission = member.join("a")
    cells = LateCells(values, clock)
    observer = Membership(cells, clock, ttl_s=TTL_S)
    assert set(observer.members()) == {"a"}
    clock.advance(TTL_S / 3)
    cells.late_s = TTL_S * 0.7
    assert set(observer.members()) == {"a"}
    assert member.renew(admission) is not None
    cells.late_s = 0.0
    assert observer.remove_gone() == []
    clock.advance(TTL_S)
    assert set(observer.members()) == set()


def test_a_member_that_was_removed_by_hand_joins_again(clock: ManualClock) -> None:
    values = MemoryValues()
    one = standby(values, clock)
    one.keep()
    values.cells.clear()
    clock.advance(TTL_S)
    one.keep()
    assert len(listed(values, clock)) == 1


class Away(MemoryCoordination):
    """Its service does not answer for a while."""

    unanswered = 3

    def look(self, scope: str) -> Look:
        if self.unanswered:
            self.unanswered -= 1
            raise CoordinationUnreachable("no server answers")
        return super().look(scope)


class Costly(MemoryCoordination):
    """Each look costs something."""

    LOOKS_IN_TTL = 3


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

    def lead_while(self, at: Callable[[float], None]) -> tuple[Leadership | None, float]:
        """Stand by while `at` is called with each time that has passed; the leadership, and when there was one."""
        began_s = self.clock.monotonic_s()

        def wait(seconds: float) -> bool:
            self.clock.advance(seconds)
            at(self.clock.monotonic_s() - began_s)
            return False

        led = lead_when_free(self.submission, self.clock, None, wait, has_stepped_down=False)
        return led, self.clock.monotonic_s() - began_s


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


def test_where_looks_are_few_the_jobs_stream_says_when_a_leader_is_about_to_leave(standing: Standing) -> None:
    """Asked to step down under its epoch, and not under another one's."""
    leading, other = standing.contender(), standing.contender(Costly)
    led = leading.campaign(standing.scope)
    standing.submission.coordination = other
    write_request(standing.submission.stream, Request(RequestKind.STEP_DOWN, led.epoch - 1, "before"))

    def at(seconds: float) -> None:
        if seconds == 7:
            write_request(standing.submission.stream, Request(RequestKind.STEP_DOWN, led.epoch, "now"))
        if seconds == 8:
            leading.release(led)

    leadership, took_s = standing.lead_while(at)
    assert leadership is not None
    assert 8 <= took_s <= 8.5


def test_where_looks_are_few_there_are_as_many_as_the_service_says(standing: Standing) -> None:
    standing.contender().campaign(standing.scope)
    looks = []

    class Counted(Costly):
        def look(self, scope: str) -> Look:
            looks.append(self._clock.monotonic_s())
            return super().look(scope)

    standing.submission.coordination = standing.contender(Counted)
    leadership, took_s = standing.lead_while(lambda seconds: None)
    assert leadership is not None
    assert TTL_S <= took_s <= TTL_S * 4 / 3
    assert len(looks) <= 5


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


def test_who_goes_on_for_a_leader_has_the_run_id_that_the_first_one_made(
    standing: Standing, home: Path, clock: ManualClock
) -> None:
    """Also when it was started with the configuration itself, as every stream processor is."""
    assert standing.lead() is not None
    submitted = standing.submission.asked()
    submitted.write(standing.submission.stream, lambda config: None)
    with ExitStack() as stack:
        other = Standing(home, clock, stack)
        other.shared = standing.shared
        other.submission.coordination = other.contender()
        assert other.lead() is not None
        other.submission.goes_on()
        assert other.submission.asked().run_id == submitted.run_id
