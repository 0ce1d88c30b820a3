"""Time is injected (RELIABILITY rule 16): leases count on `monotonic_s`, people read `wall_ms`."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod


class Clock(ABC):
    """What the control plane may know of time.

    Wall time is for display and for record timestamps only: it jumps, and two machines never agree on it.
    """

    @abstractmethod
    def monotonic_s(self) -> float:
        """Seconds that never go back. Comparable only inside one process."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this machine believes."""

    @abstractmethod
    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until `event` is set or `timeout_s` has passed; says whether it was set."""


class SystemClock(Clock):
    """The machine's own clocks."""

    def monotonic_s(self) -> float:
        """See Clock."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """See Clock."""
        return event.wait(timeout_s)
