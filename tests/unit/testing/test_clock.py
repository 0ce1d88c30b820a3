"""Deadlines: pauses between attempts, on a clock of the test's own."""

from __future__ import annotations

from grete.clock import Deadline
from grete.testing.clock import ManualClock


def attempts(clock: ManualClock, deadline: Deadline) -> list[float]:
    """When each attempt was made, of something that never succeeds."""
    made = [clock.monotonic_s()]
    while deadline.pause():
        made.append(clock.monotonic_s())
    return made


def test_pauses_double_up_to_the_longest_and_the_last_attempt_is_at_the_deadline() -> None:
    clock = ManualClock()
    assert attempts(clock, Deadline(clock, 2.0, pauses_s=(0.125, 0.5))) == [
        0,
        0.125,
        0.375,
        0.875,
        1.375,
        1.875,
        2.0,
    ]


def test_pauses_are_spread_so_that_two_who_collide_part() -> None:
    clock = ManualClock()
    assert attempts(clock, Deadline(clock, 1.0, pauses_s=(1.0, 1.0), spread=lambda: 0.5)) == [0, 0.5, 1.0]


def test_a_deadline_that_is_over_waits_no_more() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 0.0)
    assert deadline.is_over
    assert not deadline.pause()
    assert (deadline.left_s, deadline.at_s, clock.monotonic_s()) == (0.0, 0.0, 0.0)


def test_what_is_left_shrinks_with_time() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 3.0)
    clock.advance(1.0)
    assert deadline.left_s == 2.0
    assert not deadline.is_over
