"""Waiting for what real processes do in their own time; when they do not, the failure says what was there instead.

Anything that can be awaited otherwise (an event, a clock that the test moves) should be: these look again and again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_EVERY_S = 0.05
_SHARE = 9
"""A look takes processors from what is awaited: after one that took long comes a pause so many times as long."""
_LONGEST_PAUSE_S = 1.0
PATIENCE = "GRETE_TEST_PATIENCE"
"""How many times longer than on a quiet machine a test may wait, as a number."""

Context = Callable[[], str]
"""Context for the failure: states, events, the end of a log. Called once, then."""


def _nothing() -> str:
    return ""


def patient(seconds: float) -> float:
    """A limit for a machine that may be busy: `seconds` times GRETE_TEST_PATIENCE, which is 1 unless it is set.

    For what has to happen in the end, such as the exit of a process; never for how long something may take.
    """
    return seconds * float(os.environ.get(PATIENCE, "1"))


def _timed(look: Callable[[], T]) -> tuple[T, float]:
    """The state that is seen, and the pause before the next look."""
    began_s = time.monotonic()
    seen = look()
    return seen, min(max(_LOOK_EVERY_S, _SHARE * (time.monotonic() - began_s)), _LONGEST_PAUSE_S)


def eventually(
    condition: Callable[[], object], what: str = "it", *, within_s: float = 60.0, context: Context = _nothing
) -> None:
    """Wait until the condition holds, a truth value as in `if`.

    Raises:
        AssertionError: it did not within `patient(within_s)`.
    """
    within_s = patient(within_s)
    deadline_s = time.monotonic() + within_s
    while True:
        holds, pause_s = _timed(condition)
        if holds:
            return
        if time.monotonic() >= deadline_s:
            raise AssertionError(f"{what} did not happen within {within_s:g} s\n{context()}".rstrip())
        time.sleep(pause_s)


def reaches(
    count: Callable[[], int],
    wanted: int,
    what: str = "it",
    *,
    still_s: float = 60.0,
    context: Context = _nothing,
) -> None:
    """Wait until the count is as wanted or above, however long that takes, as long as it changes.

    So a slow machine fails nothing, and what stands still does.

    Raises:
        AssertionError: the count stood still for `patient(still_s)`.
    """
    still_s = patient(still_s)
    last, pause_s = _timed(count)
    since_s = time.monotonic()
    while last < wanted:
        time.sleep(pause_s)
        now, pause_s = _timed(count)
        if now != last:
            last, since_s = now, time.monotonic()
        elif time.monotonic() - since_s >= still_s:
            stands = f"{what}: it stands at {last} of {wanted} since {still_s:g} s"
            raise AssertionError(f"{stands}\n{context()}".rstrip())
