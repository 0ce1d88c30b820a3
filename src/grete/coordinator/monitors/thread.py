"""One thread that polls all monitors. Findings go to a callback; failures are shown and end nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grete.clock import Clock
from grete.coordinator.monitors.findings import Finding

_log = logging.getLogger("grete.coordinator")
_WAKES_EVERY_S = 1.0


@dataclass(slots=True)
class Poll:
    """A monitor with its reader. `interval_s` is asked every second, so a live key takes effect; <= 0 is never."""

    name: str
    interval_s: Callable[[], float]
    observe: Callable[[float], Sequence[Finding]]
    at_once: bool = False
    """Whether the first look is now or one interval later."""
    polled_s: float = field(default=0.0, init=False)


class MonitorThread:
    """Polls in turn from one thread, so monitors need no locks and a slow system delays only monitors.

    `on_finding` is called from this thread and should only put the finding somewhere. What a reader or monitor raises
    is logged when it begins, kept in `problems` while it lasts, and tried again at the next interval.
    """

    def __init__(self, polls: Iterable[Poll], clock: Clock, on_finding: Callable[[Finding], None]) -> None:
        self._polls = tuple(polls)
        self._clock = clock
        self._on_finding = on_finding
        self._problems: dict[str, str] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitors", daemon=True)
        now_s = clock.monotonic_s()
        for poll in self._polls:
            poll.polled_s = float("-inf") if poll.at_once else now_s

    @property
    def problems(self) -> Mapping[str, str]:
        """The problem that keeps a monitor from looking, by the monitor's name; empty when all of them can."""
        return dict(self._problems)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop; waits for a look that is under way, at most five seconds. Before `start` it does nothing."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._clock.wait(self._closed, _WAKES_EVERY_S):
            self.tick()

    def tick(self) -> None:
        """Poll what is due. The thread calls it once a second; a test may, instead of starting the thread."""
        for poll in self._polls:
            if self._closed.is_set():
                return
            try:
                self._poll(poll, self._clock.monotonic_s())
            except Exception as error:  # noqa: BLE001 - a thread begins here: no monitor's fault may end the job
                self._problem(poll.name, f"{type(error).__name__}: {error}")

    def _poll(self, poll: Poll, now_s: float) -> None:
        interval_s = poll.interval_s()
        if interval_s <= 0 or now_s - poll.polled_s < interval_s:
            return
        poll.polled_s = now_s
        for finding in poll.observe(now_s):
            self._on_finding(finding)
        if self._problems.pop(poll.name, None) is not None:
            _log.info("monitor %s works again", poll.name)

    def _problem(self, name: str, text: str) -> None:
        if name not in self._problems:
            _log.warning("monitor %s cannot look, and tries again: %s", name, text)
        self._problems[name] = text
