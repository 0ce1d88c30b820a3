"""The one election over a register: pauses, lost answers, values that move or vanish, and a service that is away."""

from __future__ import annotations

import pytest

from grete.coordination.base import Holder, Leadership
from grete.coordination.memory import MemoryLeaderships, MemoryTerms
from grete.coordination.observed import Decide, ObservedElection, Term
from grete.errors import CoordinationUnreachable, HeldByOther, LeadershipLost
from grete.testing.clock import ManualClock

TTL_S = 15.0
SCOPE = "job/x"
SOMEBODY = Holder("host", 1, "somebody", 0)


class Scripted(MemoryTerms):
    """Terms in memory; the next calls do what a script says: `away` before a write, `unanswered` after it."""

    def __init__(self, shared: MemoryLeaderships) -> None:
        super().__init__(shared)
        self.script: list[str] = []

    def change(
        self, scope: str, decide: Decide, timeout_s: float, mine: Leadership | None = None
    ) -> Term | None:
        step = self.script.pop(0) if self.script else ""
        if step == "away":
            raise CoordinationUnreachable("nobody answers")
        if step == "lost":
            raise LeadershipLost("the value was made anew")
        written = super().change(scope, decide, timeout_s, mine)
        if step == "unanswered":
            return super().change(scope, decide, timeout_s, mine)  # reads what it wrote, and decides again
        return written


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shared() -> MemoryLeaderships:
    return MemoryLeaderships()


@pytest.fixture
def register(shared: MemoryLeaderships) -> Scripted:
    return Scripted(shared)


@pytest.fixture
def election(register: Scripted, clock: ManualClock) -> ObservedElection:
    return ObservedElection(register, clock, ttl_s=TTL_S)


def other(shared: MemoryLeaderships, clock: ManualClock) -> ObservedElection:
    return ObservedElection(MemoryTerms(shared), clock, ttl_s=TTL_S)


def test_an_election_whose_answer_was_lost_is_recognised_and_won_once(
    election: ObservedElection, register: Scripted, shared: MemoryLeaderships
) -> None:
    register.script = ["unanswered"]
    won = election.campaign(SCOPE)
    assert (won.epoch, shared.terms[SCOPE].epoch) == (1, 1)
    assert shared.terms[SCOPE].is_held_by(won)


def test_a_renewal_whose_answer_was_lost_counts(election: ObservedElection, register: Scripted) -> None:
    won = election.campaign(SCOPE)
    register.script = ["unanswered"]
    assert election.renew(won) is not None


def test_without_an_answer_a_leader_keeps_its_time_to_act_and_gives_up_after_a_lease(
    election: ObservedElection, register: Scripted, clock: ManualClock
) -> None:
    won = election.campaign(SCOPE)
    register.script = ["away", "away"]
    clock.advance(TTL_S - 0.1)
    assert election.renew(won) == won  # as it was: its time to act is over, nobody else can have been elected
    clock.advance(0.2)
    assert election.renew(won) is None


def test_a_leader_that_was_paused_for_longer_than_a_lease_is_succeeded_and_knows(
    election: ObservedElection, shared: MemoryLeaderships, clock: ManualClock
) -> None:
    won, second = election.campaign(SCOPE), other(shared, clock)
    assert not second.is_silent(SCOPE)
    clock.advance(TTL_S - 0.1)
    with pytest.raises(HeldByOther):
        second.campaign(SCOPE)
    clock.advance(0.1)
    assert second.is_silent(SCOPE)
    assert second.campaign(SCOPE).epoch == won.epoch + 1
    assert election.renew(won) is None
    election.release(won)
    assert second.leading_epoch(SCOPE) == won.epoch + 1


def test_each_renewal_begins_a_contenders_patience_anew(
    election: ObservedElection, shared: MemoryLeaderships, clock: ManualClock
) -> None:
    """However long it takes, and whatever the wall clock says meanwhile."""
    won: Leadership | None = election.campaign(SCOPE)
    second = other(shared, clock)
    for _ in range(10):
        assert not second.look(SCOPE).is_silent
        clock.advance(TTL_S * 0.9)
        assert won is not None
        won = election.renew(won)
    with pytest.raises(HeldByOther) as refused:
        second.campaign(SCOPE)
    assert not refused.value.may_be_dead


def test_a_leadership_is_valid_from_before_it_was_asked_for_and_less_than_a_lease(
    election: ObservedElection, clock: ManualClock
) -> None:
    asked_s = clock.monotonic_s()
    won = election.campaign(SCOPE)
    assert asked_s < won.valid_until_s < asked_s + TTL_S


def test_where_the_value_was_lost_the_leader_ends_and_the_next_epoch_is_above_the_floor(
    election: ObservedElection, register: Scripted, shared: MemoryLeaderships
) -> None:
    won = election.campaign(SCOPE, epoch_floor=6)
    assert won.epoch == 7
    register.script = ["lost"]
    assert election.renew(won) is None
    shared.terms.clear()
    assert election.renew(won) is None
    assert election.campaign(SCOPE, epoch_floor=won.epoch).epoch == 8


def test_a_take_over_succeeds_a_living_leader(election: ObservedElection, shared: MemoryLeaderships) -> None:
    shared.terms[SCOPE] = Term(3, SOMEBODY)
    with pytest.raises(HeldByOther, match="process 1 on host"):
        election.campaign(SCOPE)
    assert election.campaign(SCOPE, take_over=True).epoch == 4


def test_only_the_leader_releases_and_forgets(
    election: ObservedElection, shared: MemoryLeaderships, clock: ManualClock
) -> None:
    won = election.campaign(SCOPE)
    stranger = Leadership(SCOPE, won.epoch, "somebody", won.valid_until_s)
    election.release(stranger)
    assert election.leading_epoch(SCOPE) == won.epoch
    with pytest.raises(LeadershipLost):
        election.forget(stranger)
    election.release(won)
    assert election.holder(SCOPE) is None
    assert other(shared, clock).campaign(SCOPE).epoch == won.epoch + 1


def test_a_leader_with_the_epoch_of_one_that_was_deleted_is_not_taken_for_as_silent_as_that(
    election: ObservedElection, shared: MemoryLeaderships, clock: ManualClock
) -> None:
    election.campaign(SCOPE)  # and dies
    contender = other(shared, clock)
    with pytest.raises(HeldByOther):
        contender.campaign(SCOPE)
    clock.advance(TTL_S - 1)
    del shared.terms[SCOPE]
    won = other(shared, clock).campaign(SCOPE)
    assert won.epoch == 1
    clock.advance(2)
    with pytest.raises(HeldByOther):
        contender.campaign(SCOPE)
    assert not contender.is_silent(SCOPE)
    clock.advance(TTL_S)
    assert contender.campaign(SCOPE).epoch == 2
