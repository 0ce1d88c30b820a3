"""Time is injected (RELIABILITY rule 16): leases count on `monotonic_s`, people read `wall_ms`."""

from __future__ import annotations

import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable


class Clock(ABC):
    """The clocks of one process.

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
        """Block until `event` is set or `timeout_s` has passed; returns whether it was set."""

    def wait_readable(self, descriptor: int, timeout_s: float) -> None:
        """Block until there is something to read, or `timeout_s` has passed. A made clock lets the time pass."""
        self.wait(threading.Event(), timeout_s)


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

    def wait_readable(self, descriptor: int, timeout_s: float) -> None:
        """See Clock."""
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.poll(max(0.0, timeout_s) * 1000)


class Deadline:
    """A moment on the monotonic clock up to which something is tried again, with pauses between the attempts.

        deadline = Deadline(clock, timeout_s, pauses_s=(0.002, 0.1))
        while not is_there():
            if not deadline.pause():
                raise LogUnreachable(...)

    There is always one attempt at the deadline or after it: a pause never goes beyond, and the answer to the last one
    is False. `at_s` is for calls that take a moment, `left_s` for those that take a time.
    """

    def __init__(
        self,
        clock: Clock,
        timeout_s: float,
        *,
        pauses_s: tuple[float, float] = (0.1, 0.1),
        spread: Callable[[], float] | None = None,
    ) -> None:
        """Pauses double from the first of `pauses_s` to the second; each is multiplied by `spread()`, from 0 to 1."""
        self.at_s = clock.monotonic_s() + timeout_s
        self._clock = clock
        self._pause_s, self._longest_s = pauses_s
        self._spread = spread

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, 0 when it is over."""
        return max(0.0, self.at_s - self._clock.monotonic_s())

    @property
    def is_over(self) -> bool:
        """Whether there is no time for another attempt."""
        return self._clock.monotonic_s() >= self.at_s

    def pause(self) -> bool:
        """Wait before the next attempt; False, at once, when the deadline is over."""
        left_s = self.left_s
        if left_s <= 0:
            return False
        pause_s = self._pause_s if self._spread is None else self._pause_s * self._spread()
        self._clock.wait(threading.Event(), min(pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        return True


class CpuTime:
    """The time that all threads of this process have computed, said once: shares in it would each count the whole.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said_s = 0.0

    def since_last_s(self) -> float:
        """Seconds of a processor since the last call, whoever made it, without those of processes that it started."""
        with self._lock:
            now_s = time.process_time()
            gained_s, self._said_s = max(0.0, now_s - self._said_s), now_s
        return gained_s  # a process that was forked begins at nothing


CPU = CpuTime()
