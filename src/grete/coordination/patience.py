"""How a contender notices that a holder hangs: its renewals stand still for a whole TTL on the contender's clock.

And the same from the holder's side: until when it may act, and until when nobody else can have been elected.
"""

from __future__ import annotations

from dataclasses import dataclass

from grete.clock import Clock
from grete.coordination.base import Leadership

_ACTING = 2 / 3
"""Of a TTL: for so long a holder acts on a renewal. What is left is for one whose answer comes late."""


_PAUSE_S = 2.0
"""Servers of ours stood still for so long beside busy processes, for the sake of one fsync."""


def renewal_s(ttl_s: float) -> float:
    """How long a renewal waits for its answer: a third of a TTL, and of a short one as long as it lets act.

    One that was given up is dearer than one that is late: its connection is closed, and another one shakes hands; on
    Kafka a transactional id has to be opened again.
    """
    return max(ttl_s / 3, min(_PAUSE_S, ttl_s * _ACTING))


@dataclass(frozen=True, slots=True)
class _Sighting:
    state: tuple[object, ...]
    since_s: float
    has_moved: bool = False


class Patience:
    """Renewals of other holders as one contender has seen them. Clocks are never compared (RELIABILITY rule 3)."""

    def __init__(self, clock: Clock, *, ttl_s: float) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._sightings: dict[str, _Sighting] = {}

    def is_over(self, scope: str, *state: object, asked_s: float | None = None) -> bool:
        """Look at the holder, whose `state` is new after each renewal: incarnation and renewals, or a version.

        Not the epoch: where a leadership was deleted by hand, the next one may have the same. It was taken for silent
        since the one before had stood still for so long.

        Returns whether it has not renewed for a TTL since we first saw it so. An answer that came late says how it
        was when it was asked for, at `asked_s`; without that it counts as of now, for those who look again before
        they act.
        """
        now_s = self._clock.monotonic_s()
        seen = self._sightings.get(scope)
        if seen is None or seen.state != state:
            self._sightings[scope] = _Sighting(state, now_s, has_moved=seen is not None)
            return False
        return (now_s if asked_s is None else asked_s) - seen.since_s >= self._ttl_s

    def has_moved(self, scope: str) -> bool:
        """Whether a holder has renewed or was elected since the first look."""
        seen = self._sightings.get(scope)
        return seen is not None and seen.has_moved

    def until_s(self, asked_s: float) -> float:
        """Until when a leadership requested at `asked_s` may act: earlier than any contender's patience ends."""
        return asked_s + self._ttl_s * _ACTING

    def unanswered(self, leadership: Leadership) -> Leadership | None:
        """What a renewal without an answer leaves: the leadership as it was; None once another one may lead.

        That is a whole TTL after the last renewal was sent: the time to act ends before, and a renewal that is
        answered after that still finds nobody else elected. A server that wrote its log for 1.96 s of a lease of 3 s
        would cost a leadership otherwise.
        """
        over_s = leadership.valid_until_s + self._ttl_s * (1 - _ACTING)
        return leadership if self._clock.monotonic_s() < over_s else None
