"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading

from grete.clock import Clock


class ManualClock(Clock):
    """Both clocks move by `advance` only; waiting for an event that is not set takes the whole timeout at once.

    `set_wall` makes the wall clock jump, as an operator or a bad NTP server does; the monotonic one never does.
    """

    def __init__(self, *, wall_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._monotonic_s = 0.0
        self._wall_ms = wall_ms

    def monotonic_s(self) -> float:
        """See Clock."""
        return self._monotonic_s

    def wall_ms(self) -> int:
        """See Clock."""
        return self._wall_ms

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """See Clock. An event that is not set is not waited for: the time passes and it returns."""
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()

    def advance(self, seconds_s: float) -> None:
        """Let time pass."""
        assert seconds_s >= 0, "time does not go back; the wall clock may, see set_wall"
        with self._lock:
            self._monotonic_s += seconds_s
            self._wall_ms += round(seconds_s * 1000)

    def set_wall(self, wall_ms: int) -> None:
        """Let the wall clock jump."""
        self._wall_ms = wall_ms
