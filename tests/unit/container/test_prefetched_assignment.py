"""An assignment that is fetched before it is wanted: it is of the number that is wanted, or is fetched once more."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from grete.container.control import Control
from grete.container.prefetched_assignment import PrefetchedAssignment
from grete.errors import CoordinatorUnavailable
from grete.testing.waiting import patient
from grete.wire.container_protocol import Command, Directive


def test_what_was_fetched_is_given_once() -> None:
    fetched: list[int] = []
    ahead = PrefetchedAssignment(lambda: {"serial": 2, "fetch": fetched.append(1)})
    ahead.begin(2)
    ahead.begin(2)
    assert ahead.take(2) == {"serial": 2, "fetch": None}
    assert fetched == [1]
    assert ahead.take(2) is None, "what is wanted again is asked for again: startpoints may have come"


@pytest.mark.parametrize("serial", [1, 3])
def test_an_assignment_of_another_number_is_fetched_again(serial: int) -> None:
    ahead = PrefetchedAssignment(lambda: {"serial": serial})
    ahead.begin(2)
    assert ahead.take(2) is None


def test_for_a_later_number_it_is_fetched_anew() -> None:
    serials = iter([2, 3])
    ahead = PrefetchedAssignment(lambda: {"serial": next(serials)})
    ahead.begin(2)
    assert ahead.take(3) is None
    ahead.begin(3)
    assert ahead.take(3) == {"serial": 3}
    assert ahead.take(None) is None


def test_who_wants_it_waits_for_the_answer_and_a_refusal_is_nobodys() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def fetch() -> dict[str, Any]:
        asked.set()
        assert go_on.wait(patient(10))
        raise CoordinatorUnavailable("none")

    ahead = PrefetchedAssignment(fetch)
    ahead.begin(2)
    assert asked.wait(patient(10))
    go_on.set()
    assert ahead.take(2) is None


def test_there_is_a_next_assignment_when_it_is_to_be_run_and_not_at_a_barrier() -> None:
    control = Control(threading.Event())
    control.running(1)
    for directive, wanted in (
        (Directive(Command.RUN, 1), None),
        (Directive(Command.PAUSE, 2), None),
        (Directive(Command.RUN, 2), 2),
    ):
        control.on_directive(directive)
        assert control.next_serial == wanted
    control.running(2)
    assert control.next_serial is None
