from __future__ import annotations

import pytest

from grete.coordination.base import Leadership
from grete.coordination.memory import MemoryCoordination
from grete.coordinator.renewal import Renewal, RenewalFigures
from grete.errors import LeadershipLost, LogError, LoginRefused
from grete.testing.clock import ManualClock

TTL_S = 15.0


class Coordination(MemoryCoordination):
    """Counts renewals; fails while it is set to."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, ttl_s=TTL_S)
        self._hands = clock
        self.renewals = 0
        self.is_down = self.is_refused = False
        self.returns_what_it_had = False
        self.unanswered_until_s = 0.0
        self.take_s: list[float] = []

    def renew(self, leadership: Leadership) -> Leadership | None:
        self.renewals += 1
        if self.is_refused:
            raise LoginRefused("the ticket has expired")
        if self.is_down:
            raise LogError("the store does not answer")
        if self.returns_what_it_had:
            return leadership
        if self._clock.monotonic_s() < self.unanswered_until_s:
            return self._patience.unanswered(leadership)
        renewed = super().renew(leadership)
        self._hands.advance(self.take_s.pop() if self.take_s else 0)
        return renewed


def made() -> tuple[Renewal, Coordination, ManualClock]:
    clock = ManualClock()
    coordination = Coordination(clock)
    leadership = coordination.campaign("job/a")
    renewal = Renewal(coordination, leadership, clock, every_s=TTL_S / 3, patience_s=60)
    return renewal, coordination, clock


def test_a_proof_within_its_time_needs_no_request() -> None:
    renewal, coordination, clock = made()
    clock.advance(TTL_S / 2)
    renewal.prove()
    assert coordination.renewals == 0


def test_a_proof_after_its_time_renews_first() -> None:
    renewal, coordination, clock = made()
    clock.advance(TTL_S)
    assert renewal.prove().valid_until_s > clock.monotonic_s()
    assert coordination.renewals == 1


def test_a_renewal_that_took_longer_than_it_lasts_proves_nothing() -> None:
    renewal, coordination, clock = made()
    clock.advance(TTL_S)
    coordination.take_s = [0, TTL_S]
    assert renewal.prove().valid_until_s > clock.monotonic_s()
    assert coordination.renewals == 2
    clock.advance(TTL_S)
    coordination.take_s = [TTL_S] * 9
    with pytest.raises(LeadershipLost, match="job/a: each renewal took longer than it lasts"):
        renewal.prove()


def test_a_proof_waits_for_an_answer_as_long_as_nobody_else_can_be_elected() -> None:
    """A connection that was lost is refused at once, many times in the second that is left."""
    renewal, coordination, clock = made()
    clock.advance(TTL_S * 2 / 3)
    began_s = clock.monotonic_s()
    coordination.unanswered_until_s = began_s + TTL_S / 4
    assert renewal.prove().valid_until_s > clock.monotonic_s() >= began_s + TTL_S / 4
    clock.advance(TTL_S * 2 / 3)
    coordination.unanswered_until_s = clock.monotonic_s() + TTL_S
    with pytest.raises(LeadershipLost, match="not renewed in time, or taken over"):
        renewal.prove()


def test_who_was_succeeded_gets_no_proof_and_does_not_ask_again() -> None:
    renewal, coordination, _clock = made()
    coordination.campaign("job/a", take_over=True)
    assert renewal.tick()
    for act in (renewal.prove, renewal.beat, renewal.prove):
        with pytest.raises(LeadershipLost, match="epoch 1 of job/a was taken over"):
            act()
    assert coordination.renewals == 1


def test_a_store_that_does_not_answer_proves_nothing_once_the_time_is_over() -> None:
    renewal, coordination, clock = made()
    coordination.is_down = True
    assert not renewal.tick()
    renewal.prove()
    clock.advance(TTL_S)
    with pytest.raises(LogError):
        renewal.prove()
    coordination.is_down = False
    renewal.prove()


def test_who_is_let_in_no_more_ends_when_another_may_lead() -> None:
    renewal, coordination, clock = made()
    coordination.is_refused = True
    clock.advance(TTL_S * 0.9)
    assert not renewal.tick()
    renewal.beat()
    clock.advance(TTL_S * 0.2)
    assert not renewal.tick()
    with pytest.raises(LeadershipLost, match="epoch 1 of job/a was not renewed for a lease"):
        renewal.beat()


def test_a_refusal_takes_nothing_from_a_proof_that_was_let_in_since() -> None:
    """The loop proves its leadership on another thread, between the refused renewal and what follows from it."""
    renewal, coordination, clock = made()
    clock.advance(TTL_S * 2)
    coordination.is_refused = True
    look = clock.monotonic_s

    def after_the_refusal() -> float:
        clock.monotonic_s = look  # type: ignore[method-assign] # as it was
        coordination.is_refused = False
        assert renewal.prove().valid_until_s > look()
        return look()

    def renew(leadership: Leadership) -> Leadership | None:
        if coordination.is_refused:
            clock.monotonic_s = after_the_refusal  # type: ignore[method-assign] # once
        return Coordination.renew(coordination, leadership)

    coordination.renew = renew  # type: ignore[method-assign] # of this one
    assert renewal.tick() is False
    renewal.beat()


def test_a_renewal_that_lengthens_nothing_is_tried_again_soon() -> None:
    renewal, coordination, clock = made()
    coordination.returns_what_it_had = True
    clock.advance(1)
    assert not renewal.tick()
    coordination.returns_what_it_had = False
    assert renewal.tick()


def test_renewals_and_failures_are_counted_and_show_how_long_it_holds() -> None:
    renewal, coordination, clock = made()
    assert renewal.figures == RenewalFigures(0, 0, TTL_S * 2 / 3)
    clock.advance(4)
    renewal.tick()
    assert renewal.figures == RenewalFigures(1, 0, TTL_S * 2 / 3)
    coordination.is_down = True
    clock.advance(1)
    renewal.tick()
    coordination.is_down = False
    coordination.returns_what_it_had = True
    renewal.tick()
    assert renewal.figures == RenewalFigures(1, 2, TTL_S * 2 / 3 - 1)
    coordination.returns_what_it_had = False
    coordination.campaign("job/a", take_over=True)
    renewal.tick()
    assert renewal.figures == RenewalFigures(1, 3, 0)


def test_a_loop_that_hangs_does_not_keep_its_leadership() -> None:
    renewal, coordination, clock = made()
    clock.advance(61)
    renewal.tick()
    assert coordination.renewals == 0
    renewal.beat()
    renewal.tick()
    assert coordination.renewals == 1
