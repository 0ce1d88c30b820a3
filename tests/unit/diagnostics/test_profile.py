"""The profile of a share."""

from __future__ import annotations

from grete.tasks.profile import Profile
from grete.testing.clock import ManualClock


def spend() -> int:
    return sum(range(1_000))


def test_a_profile_names_the_functions_of_its_seconds_once() -> None:
    clock, given = ManualClock(), list[str]()
    profile = Profile(5.0, clock, given.append)
    spend()
    profile.look()
    assert not given
    clock.advance(5.0)
    profile.look()
    profile.look()
    profile.close()
    [text] = given
    assert text.startswith("5.0 seconds")
    assert "(spend)" in text


def test_a_share_that_ends_before_gives_the_profile_that_it_has() -> None:
    given = list[str]()
    profile = Profile(5.0, ManualClock(), given.append)
    spend()
    profile.close()
    assert "(spend)" in given[0]


def test_no_seconds_are_no_profile() -> None:
    given = list[str]()
    profile = Profile(0, ManualClock(), given.append)
    profile.look()
    profile.close()
    assert not given
