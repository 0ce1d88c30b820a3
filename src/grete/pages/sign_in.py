"""Who may see the pages: a link that is used once becomes a cookie; no token is ever part of an address.

The link holds a right, the moment at which it ends, a number of its own and a signature with the token of that right,
so whoever may read the token's file can make one (`grete status` does). A session is kept in this process alone.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

from grete.clock import Clock
from grete.server.rights import LINK_S, Right, Tokens, code_signature

_SESSION_S = 12 * 3600
_MOST_SESSIONS = 200
_MOST_USED = 1_000


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has signed in. `form_key` is part of every form that changes something."""

    right: Right
    form_key: str
    until_s: float

    @property
    def may_write(self) -> bool:
        """Whether it may do more than look."""
        return self.right is Right.WRITE


class SignIn:
    """The sessions of one server. Thread-safe."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = {Right.READ: tokens.read, Right.WRITE: tokens.write}
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._used: OrderedDict[str, None] = OrderedDict()

    @property
    def is_reading_free(self) -> bool:
        """Whether everybody who reaches the server may look, as `job.coordinator.http.authentication=none` says."""
        return self._tokens[Right.READ] is None

    def redeem(self, code: str) -> str | None:
        """The cookie for a code; None for one that is wrong, too old, or used before."""
        signed, _, signature = code.rpartition(".")
        parts = signed.split(".")
        right, until_ms = parts[:2] if len(parts) == 3 else ("", "")
        token = self._tokens.get(Right(right)) if right in (Right.READ, Right.WRITE) else None
        if token is None or not hmac.compare_digest(
            signature.encode(), code_signature(token, signed).encode()
        ):
            return None
        if not 0 < int(until_ms) - self._clock.wall_ms() <= LINK_S * 1000:
            return None
        with self._lock:
            if signed in self._used:
                return None
            self._used[signed] = None
            while len(self._used) > _MOST_USED:
                self._used.popitem(last=False)
            return self._begin(Right(right))

    def _begin(self, right: Right) -> str:
        cookie = secrets.token_urlsafe(32)
        until_s = self._clock.monotonic_s() + _SESSION_S
        self._sessions[cookie] = Session(right, secrets.token_urlsafe(24), until_s)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie, None of one that has ended or never was."""
        with self._lock:
            found = self._sessions.get(cookie)
            if found is None or found.until_s < self._clock.monotonic_s():
                return None
            return found

    def end(self, cookie: str) -> None:
        """Sign out."""
        with self._lock:
            self._sessions.pop(cookie, None)
