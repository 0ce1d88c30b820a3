"""A profile of a share for its first seconds, as text for its container's log: the functions that take the time."""

from __future__ import annotations

import cProfile
import io
import pstats
from collections.abc import Callable

from grete.clock import Clock

_FUNCTIONS = 40


class Profile:
    """Profiles the thread that makes it, and hands the text over once, when the time is over or with `close`."""

    def __init__(self, seconds: float, clock: Clock, hand_over: Callable[[str], None]) -> None:
        """0 seconds is no profile."""
        self._clock = clock
        self._hand_over = hand_over
        self._began_s = clock.monotonic_s()
        self._until_s = self._began_s + seconds
        self._profile = cProfile.Profile() if seconds > 0 else None
        if self._profile is not None:
            self._profile.enable()

    def look(self) -> None:
        """Called between steps of the share: end when it is time."""
        if self._profile is not None and self._clock.monotonic_s() >= self._until_s:
            self.close()

    def close(self) -> None:
        """End, unless it has ended."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        profile.disable()
        text = io.StringIO()
        text.write(f"{self._clock.monotonic_s() - self._began_s:.1f} seconds\n")
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(_FUNCTIONS)
        self._hand_over(text.getvalue())
