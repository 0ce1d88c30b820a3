"""A link signs in once and within a minute, with the right of the token that it was made with."""

from __future__ import annotations

import pytest

from grete.pages.sign_in import SignIn
from grete.server.rights import LINK_S, Right, Tokens, one_time_code
from grete.testing.clock import ManualClock

TOKENS = Tokens("read-token", "write-token", "container-token")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sign_in(clock: ManualClock) -> SignIn:
    return SignIn(TOKENS, clock)


@pytest.mark.parametrize(("right", "token"), [(Right.READ, "read-token"), (Right.WRITE, "write-token")])
def test_a_link_has_the_right_of_its_token(
    sign_in: SignIn, clock: ManualClock, right: Right, token: str
) -> None:
    cookie = sign_in.redeem(one_time_code(right, token, clock))
    assert cookie is not None
    session = sign_in.session(cookie)
    assert session is not None
    assert (session.right, session.may_write) == (right, right is Right.WRITE)


def test_a_link_is_good_once(sign_in: SignIn, clock: ManualClock) -> None:
    code = one_time_code(Right.WRITE, "write-token", clock)
    assert sign_in.redeem(code)
    assert sign_in.redeem(code) is None


@pytest.mark.parametrize(("passed_s", "is_good"), [(LINK_S - 1, True), (LINK_S, False), (LINK_S + 60, False)])
def test_a_link_is_good_for_a_minute(
    sign_in: SignIn, clock: ManualClock, passed_s: int, is_good: bool
) -> None:
    code = one_time_code(Right.READ, "read-token", clock)
    clock.advance(passed_s)
    assert bool(sign_in.redeem(code)) is is_good


def test_a_link_from_a_clock_that_is_ahead_lives_no_longer(sign_in: SignIn, clock: ManualClock) -> None:
    ahead = ManualClock()
    ahead.advance(3_600)
    assert sign_in.redeem(one_time_code(Right.READ, "read-token", ahead)) is None


@pytest.mark.parametrize("right", [Right.READ, Right.WRITE, Right.CONTAINER])
@pytest.mark.parametrize("token", ["", "read-token", "container-token", "guessed"])
def test_no_other_token_gives_a_right(sign_in: SignIn, clock: ManualClock, right: Right, token: str) -> None:
    code = one_time_code(right, token, clock)
    is_good = (right, token) == (Right.READ, "read-token")
    assert bool(sign_in.redeem(code)) is is_good
    assert sign_in.redeem(code.replace("read.", "write.", 1)) is None, "a right is signed with it"


@pytest.mark.parametrize(
    "code", ["", ".", "...", "read", "read.1.2", "write.x.y.z", "nothing.1.2.3", "é.1.2.3", "read.1.2.é"]
)
def test_what_is_no_code_signs_nobody_in(sign_in: SignIn, code: str) -> None:
    assert sign_in.redeem(code) is None


def test_a_session_ends_by_itself_and_by_signing_out(sign_in: SignIn, clock: ManualClock) -> None:
    first, second = (sign_in.redeem(one_time_code(Right.READ, "read-token", clock)) for _ in range(2))
    assert first
    assert second
    assert first != second
    sign_in.end(first)
    assert sign_in.session(first) is None
    assert sign_in.session(second) is not None
    clock.advance(24 * 3_600)
    assert sign_in.session(second) is None


def test_sessions_are_bounded(sign_in: SignIn, clock: ManualClock) -> None:
    cookies = [sign_in.redeem(one_time_code(Right.READ, "read-token", clock)) for _ in range(300)]
    known = [cookie for cookie in cookies if cookie and sign_in.session(cookie)]
    assert known == cookies[-200:]
