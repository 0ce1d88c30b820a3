"""What is made for a page is made once for all that ask within a look, and is no longer kept than it is good for."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from grete.pages.answers import SharedAnswers
from grete.pages.sign_in import Session
from grete.server.rights import Right
from grete.testing.clock import ManualClock

READER, OTHER = Session(Right.READ, "key-1", math.inf), Session(Right.READ, "key-2", math.inf)
WRITER = Session(Right.WRITE, "key-3", math.inf)


class Kitchen:
    """Counts what was made."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.answers = SharedAnswers(self.clock.monotonic_s)
        self.made = self.rendered = 0

    def make(self) -> Mapping[str, Any]:
        self.made += 1
        return {"made": self.made}

    def render(self, values: Mapping[str, Any], session: Session) -> str:
        self.rendered += 1
        return f"{values['made']} {session.right} {session.form_key}"

    def ask(self, session: Session = READER, look: int = 1, page: str = "work") -> tuple[str, str]:
        body, tag = self.answers.page((page,), look, session, self.make, self.render)
        return body(), tag


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


def test_sessions_of_a_right_share_a_page_and_each_has_its_own_key_and_tag(kitchen: Kitchen) -> None:
    first, tag = kitchen.ask()
    second, other_tag = kitchen.ask(OTHER)
    assert (first, second) == ("1 read key-1", "1 read key-2")
    assert tag != other_tag
    assert kitchen.ask()[1] == tag
    assert (kitchen.made, kitchen.rendered) == (1, 1)


def test_another_right_has_another_page_of_the_same_figures(kitchen: Kitchen) -> None:
    kitchen.ask()
    assert kitchen.ask(WRITER)[0] == "1 write key-3"
    assert (kitchen.made, kitchen.rendered) == (1, 2)


def test_after_the_next_look_a_moment_or_a_change_it_is_made_anew(kitchen: Kitchen) -> None:
    kitchen.ask()
    assert kitchen.ask(look=2)[0].startswith("2 ")
    kitchen.clock.advance(1.5)
    assert kitchen.ask(look=2)[0].startswith("3 ")
    kitchen.answers.forget()
    assert kitchen.ask(look=2)[0].startswith("4 ")


def test_what_fails_is_tried_by_the_next_who_asks(kitchen: Kitchen) -> None:
    def fail() -> Mapping[str, Any]:
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        kitchen.answers.page(("work",), 1, READER, fail, kitchen.render)
    assert kitchen.ask()[0] == "1 read key-1"


def test_no_more_is_kept_than_is_asked_for(kitchen: Kitchen) -> None:
    for number in range(200):
        kitchen.ask(page=str(number))
        assert len(kitchen.answers._answers) <= 64
    kitchen.clock.advance(11.0)
    kitchen.ask()
    assert len(kitchen.answers._answers) == 1


def test_of_many_who_ask_at_once_one_makes_it(kitchen: Kitchen) -> None:
    begun = threading.Barrier(8)

    def ask() -> None:
        begun.wait()
        kitchen.ask()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kitchen.made == 1
