"""Virtual time and the processes that live in it: each can be killed, paused and resumed between any two steps.

A process runs *scripts*: generators that yield whenever the real program could be interrupted. What a script does
between two yields happens at once; a step of the simulation is one such stretch, or one fault.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from grete.clock import Clock
from grete.errors import GreteError

_WALL_START_MS = 1_700_000_000_000


class Scheduler:
    """The queue of what happens next. Equal times are served in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Let `action` happen `delay_s` from now."""
        self._asked += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._asked, action))

    def due_s(self) -> float | None:
        """When the next step is due, None when nothing is left."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Do what comes next; False when nothing is left."""
        if not self._queue:
            return False
        due_s, _, action = heapq.heappop(self._queue)
        self.now_s = max(self.now_s, due_s)
        self.steps += 1
        action()
        return True


class ProcessClock(Clock):
    """One process's clocks: the monotonic one may run fast or slow, the wall clock may be anywhere.

    `jump_ms` moves the wall clock, as an operator or a bad NTP server does.
    """

    def __init__(self, scheduler: Scheduler, *, rate: float, wall_offset_ms: int) -> None:
        self._scheduler = scheduler
        self._rate = rate
        self.jump_ms = wall_offset_ms
        self.on_wait: Callable[[float], None] | None = None
        """Lets the world go on for this time, in processes whose only thread may block."""

    def true_s(self, seconds_s: float) -> float:
        """How long it really takes until this clock has counted so many seconds."""
        return seconds_s / self._rate

    def monotonic_s(self) -> float:
        """See Clock."""
        return self._scheduler.now_s * self._rate

    def wall_ms(self) -> int:
        """See Clock."""
        return _WALL_START_MS + round(self._scheduler.now_s * 1000) + self.jump_ms

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """See Clock. Scripts yield instead; only the code of shares waits in the middle of a call."""
        assert self.on_wait is not None, "a simulated process must not block; yield Sleep instead"
        self.on_wait(self.true_s(timeout_s))
        return False


class Killed(BaseException):
    """Raised inside a store call when the process dies there. No program catches it."""


class Ended(Exception):
    """Raised by a script to end its process with a code."""

    def __init__(self, code: int, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Go on after this time."""

    seconds_s: float = 0.001


@dataclass(frozen=True, slots=True)
class Call:
    """Ask a server and go on with its answer, or with None when there was none in time."""

    server: Callable[[], Server | None]
    request: dict[str, Any]
    timeout_s: float = 2.0


class Server:
    """A server that answers requests while its process lives."""

    process: Process

    def serve(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            GreteError: raised at the one who asked.
        """
        raise NotImplementedError


Wait = Sleep | Call
Script = Generator[Wait, Any, None]
Deliver = Callable[["Process", Call, Callable[[Any], None]], None]

KILLED = -9


class Process:
    """One process of the simulated world. Its memory dies with it; what it wrote to the stores stays."""

    def __init__(self, scheduler: Scheduler, name: str, clock: ProcessClock, deliver: Deliver) -> None:
        self.name = name
        self.clock = clock
        self.exit_code: int | None = None
        self.reason = ""
        self.on_end: list[Callable[[], None]] = []
        self.on_write: list[Callable[[], None]] = []
        self._scheduler = scheduler
        self._deliver = deliver
        self._paused = False
        self.is_amid_a_call = False
        """It stalls in a call, and goes on with that one: no other pause that ends lets it begin another."""
        self._late: list[tuple[Script, Any]] = []
        self.together = [self]
        """Threads of one program, each simulated as a process: they are killed at once."""

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended; a paused process is alive."""
        return self.exit_code is None

    @property
    def is_running(self) -> bool:
        """Whether it is alive and not paused."""
        return self.exit_code is None and not self._paused

    def spawn(self, script: Script, delay_s: float = 0.0) -> None:
        """Run a script as one of the process's threads. The end of any of them is the end of the process."""
        self._scheduler.after(delay_s, lambda: self._go_on(script, None))

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP)."""
        self._paused = True

    def resume(self) -> None:
        """Let it go on as if nothing had happened (SIGCONT)."""
        if not self._paused or self.is_amid_a_call:
            return
        self._paused = False
        late, self._late = self._late, []
        for script, value in late:
            self._scheduler.after(0.0, lambda s=script, v=value: self._go_on(s, v))  # type: ignore[misc] # bound now

    def kill(self) -> None:
        """End it at once (SIGKILL); works on a paused process as well."""
        self._die("killed")

    def end(self) -> None:
        """End it in order."""
        self._end(0, "")

    def _die(self, reason: str) -> None:
        for process in self.together:
            process._end(KILLED, reason)

    def _end(self, code: int, reason: str) -> None:
        if self.exit_code is not None:
            return
        self.exit_code, self.reason = code, reason
        self._late = []
        for action in self.on_end:
            action()

    def _go_on(self, script: Script, value: Any) -> None:
        if self.exit_code is not None:
            return
        if self._paused:
            self._late.append((script, value))
            return
        try:
            wait = script.throw(value) if isinstance(value, BaseException) else script.send(value)
        except StopIteration:
            self._end(0, "")
        except Ended as end:
            self._end(end.code, end.reason)
        except Killed:
            self._die("killed in a store call")
        except GreteError as error:
            self._end(error.exit_code, f"{type(error).__name__}: {error}")
        else:
            self._wait(script, wait)

    def _wait(self, script: Script, wait: Wait) -> None:
        if isinstance(wait, Sleep):
            self._scheduler.after(self.clock.true_s(wait.seconds_s), lambda: self._go_on(script, None))
        else:
            self._deliver(self, wait, lambda answer: self._go_on(script, answer))
