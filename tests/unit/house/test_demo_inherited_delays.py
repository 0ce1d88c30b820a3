"""The demo's rule for inherited delays, flight by flight."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "flights"))

from inherited_delays import UNSEEN, follow

HOUR_MS = 3_600_000


def flight(dep_delay: int | None, arr_delay: int | None, hour: int = 8) -> dict[str, Any]:
    when = {"year": 2013, "month": 7, "day": 4, "hour": hour, "minute": 5}
    return {
        **when,
        "dep_time": None if dep_delay is None else 1,
        "dep_delay": dep_delay,
        "arr_delay": arr_delay,
    }


def after(*flights: dict[str, Any], every_h: int = 3) -> dict[str, Any]:
    state = UNSEEN
    for number, one in enumerate(flights):
        state = follow(state, one, number * every_h * HOUR_MS)
    return state


def test_a_late_departure_after_a_late_arrival_is_inherited_and_lengthens_the_chain() -> None:
    state = after(flight(20, 15, hour=8), flight(15, 40, hour=11), flight(30, 10, hour=14))
    assert (state["inherited"], state["chain"], state["chain_min"]) == (True, 3, 65)
    assert state["chain_from"] == "2013-07-04 08:05"


def test_a_late_departure_after_an_arrival_in_time_begins_a_chain_of_its_own() -> None:
    state = after(flight(20, 14, hour=8), flight(16, 0, hour=11))
    assert (state["inherited"], state["chain"], state["chain_from"]) == (False, 1, "2013-07-04 11:05")


def test_a_delay_is_inherited_from_a_flight_that_left_in_time_and_came_late() -> None:
    state = after(flight(0, 50, hour=8), flight(45, 0, hour=11))
    assert (state["inherited"], state["chain"], state["chain_from"]) == (True, 1, "2013-07-04 11:05")


def test_a_departure_in_time_ends_the_chain() -> None:
    state = after(flight(20, 20), flight(14, 20))
    assert (state["inherited"], state["chain"], state["chain_min"], state["chain_from"]) == (
        False,
        0,
        0,
        None,
    )


@pytest.mark.parametrize(("every_h", "inherited"), [(24, True), (25, False)])
def test_a_delay_is_inherited_for_a_day(every_h: int, inherited: bool) -> None:
    assert after(flight(20, 20), flight(20, 20), every_h=every_h)["inherited"] is inherited


def test_a_cancelled_flight_is_counted_and_hands_the_delay_past_itself() -> None:
    state = after(flight(20, 20), flight(None, None), flight(20, 20))
    assert (state["flights"], state["cancelled"], state["chain"]) == (3, 1, 2)


def test_nothing_is_inherited_from_a_flight_that_landed_elsewhere() -> None:
    assert after(flight(20, None), flight(20, 20))["inherited"] is False
