"""SIGTERM and SIGINT for a process that coordinates a job, over all incarnations of its coordinator."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from grete.coordinator.events import Event, StopRequested


class Requests(Protocol):
    """Requests to a coordinator from the process that it is in, over all its incarnations."""

    on_request: Callable[[], None]
    """Called when one has come, by whom it comes from: any thread, or a signal's handler, which may hold any lock."""

    def listen(self) -> None:
        """From now on, and for good, requests come here: a coordinator is at work, or waits to be."""

    def requests(self, deadline_s: float) -> Iterator[Event]:
        """The requests since the last call, to stop the job within `deadline_s` for example."""

    def again(self) -> bool:
        """Ask the next incarnation to stop the job as one was asked that did not come to it; whether it is asked."""

    def wait(self, timeout_s: float) -> bool:
        """Whether this process is asked to coordinate no more, by now or within the time."""


class StopSignals:
    """Signals that have come wait here to be fetched, by the loop that runs or by the start of the next one.

    A handler runs between any two steps of the main thread, which may hold any lock; so it only puts the signal where
    no lock is needed.
    """

    def __init__(self) -> None:
        self._came: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asked: list[str] = []
        self.on_request: Callable[[], None] = lambda: None
        self.have_come = False
        """Whether there was any, whatever became of it."""

    def listen(self) -> None:
        """From now on and for good: signals do not end the process any more. Called in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: Any) -> None:
        self.have_come = True
        self._came.put(signal.Signals(number).name)
        self.on_request()

    def requests(self, deadline_s: float) -> Iterator[StopRequested]:
        """Requests by signals since the last call. The first stops within `deadline_s`, every other one kills."""
        while not self._came.empty():
            name, within_s = self._came.get(), 0.0 if self._asked else deadline_s
            self._asked.append(name)
            yield StopRequested(within_s, name)

    def again(self) -> bool:
        """See Requests."""
        asked, self._asked = self._asked, []
        for name in asked:
            self._came.put(name)
        return self.have_come

    def wait(self, timeout_s: float) -> bool:
        """Whether one has come by now or comes within the time."""
        if not self.have_come:
            try:
                self._came.put(self._came.get(timeout=timeout_s))
            except queue.Empty:
                return False
        return True
