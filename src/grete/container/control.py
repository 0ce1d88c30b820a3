"""The directive in force, whether it interrupts the running query, and how queries end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from grete.wire.container_protocol import Command, Directive
from grete.wire.metric_values import Metrics


class Ended(Enum):
    """Why a query has ended without an error."""

    DRAINED = "drained"
    SHUTDOWN = "shutdown"
    """A task asked for it."""
    INTERRUPTED = "interrupted"


class Interruption(Protocol):
    """Whether the work shall end at the next batch boundary: a `threading.Event`, for example."""

    def is_set(self) -> bool:
        """Asked from several threads."""

    def wait(self, timeout: float) -> object:
        """Return after so many seconds, or before when it may have been set, and at once when it is."""


def leads_on(control: Interruption) -> bool:
    """Whether the work shall end, and the container is to go on with other work."""
    return isinstance(control, Control) and control.is_set() and not control.is_stopping


class Control:
    """Between the heartbeat's thread, signals, and the thread that runs queries."""

    def __init__(self, stop: threading.Event) -> None:
        self._changed = threading.Condition()
        self._stop = stop
        self._serial = 0
        self._directive = Directive(Command.RUN, 0)
        self.on_at_work: Callable[[], None] = lambda: None
        """Called when the query has begun to look for input."""
        self.on_progress: Callable[[Metrics], None] = lambda metrics: None
        """Called with what the engine says of its work."""
        self.on_outputs: Callable[[list[str]], None] = lambda streams: None
        """Called with the streams that a pipeline writes, when it has been built."""

    def is_set(self) -> bool:
        """Whether the query shall end at the next batch boundary, for whatever reason."""
        if self._stop.is_set():
            return True
        with self._changed:
            return self._directive.action is Command.PAUSE or self._directive.number > self._serial

    @property
    def is_stopping(self) -> bool:
        """Whether the container shall end."""
        return self._stop.is_set()

    def running(self, serial: int) -> None:
        """The container is about to run the assignment of this number."""
        with self._changed:
            self._serial = serial

    @property
    def next_serial(self) -> int | None:
        """The number of the assignment that is to be run after this one; None while there is none."""
        with self._changed:
            is_newer = self._directive.number > self._serial
            return self._directive.number if is_newer and self._directive.action is Command.RUN else None

    def on_directive(self, directive: Directive) -> None:
        """Take the coordinator's answer to a heartbeat."""
        with self._changed:
            if directive.action is Command.STOP:
                self._stop.set()
            else:
                self._directive = directive
            self._changed.notify_all()

    @property
    def barrier(self) -> int:
        """The barrier at which the container shall wait, 0 for none."""
        with self._changed:
            return self._directive.number if self._directive.action is Command.PAUSE else 0

    def wait(self, timeout: float) -> None:
        """Wait for the next directive, at most so many seconds; not at all when the query shall end.

        So a directive between a look at `is_set` and this call is not missed.
        """
        with self._changed:
            if not self.is_set():
                self._changed.wait(timeout)

    def wait_at(self, barrier: int, timeout: float) -> None:
        """Wait at a barrier for the directive to leave it, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._stop.is_set() or self.barrier != barrier, timeout)

    def pause(self, timeout: float) -> None:
        """Wait for the coordinator's next answer, whatever it is, at most so many seconds."""
        with self._changed:
            if not self._stop.is_set():
                self._changed.wait(timeout)
