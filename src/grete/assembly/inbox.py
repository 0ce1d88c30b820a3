"""Events for a coordinator's loop, which any thread posts, and the wait for them."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import weakref
from collections.abc import Iterable

from grete.coordinator.events import Event, Tick

_MOST = 10_000


class Inbox:
    """Events in the order in which they were posted. `get` is called by one thread."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event] = queue.Queue(_MOST)
        self._posted = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(
            self, os.close, self._posted
        )  # not before: a thread may post to an incarnation that has ended

    def post(self, event: Event) -> None:
        """Add an event; waits while there are 10,000."""
        self._events.put(event)
        self.wake()

    def wake(self) -> None:
        """Let `get` return at once. Takes no lock, so a signal's handler may call it."""
        os.eventfd_write(self._posted, 1)

    def get(self, timeout_s: float, descriptors: Iterable[int] = ()) -> Event:
        """The next event; a Tick when none comes in time, or one of the descriptors is readable before."""
        if self._events.empty():
            awaited = select.poll()
            for descriptor in (self._posted, *descriptors):
                awaited.register(descriptor, select.POLLIN)
            awaited.poll(timeout_s * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._posted)
        try:
            return self._events.get_nowait()
        except queue.Empty:
            return Tick()
