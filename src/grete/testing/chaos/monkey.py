"""Picks a victim, kills it, writes it down, waits. The same seed picks the same kinds of victims."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from grete.clock import Clock
from grete.testing.chaos.components import Component

_log = logging.getLogger("grete.chaos")


@dataclass(frozen=True, slots=True)
class KilledProcess:
    """One process that was killed or paused."""

    component: str
    pid: int
    wall_ms: int


class Monkey:
    """Kills or pauses one process a round."""

    def __init__(
        self, components: Sequence[Component], *, seed: int, clock: Clock, pause_s: float = 0.0
    ) -> None:
        """With `pause_s`, every other victim that may be paused is, for at most so long, instead of killed."""
        self._pause_s = pause_s
        self._timers: list[threading.Timer] = []
        self._components = list(components)
        self._random = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._clock = clock
        self.kills: list[KilledProcess] = []

    def strike(self) -> KilledProcess | None:
        """Kill a process of a random component, or of another when none of it runs; None when nothing runs."""
        order = self._random.sample(self._components, len(self._components))
        for component in order:
            pids = component.pids()
            if not pids:
                continue
            pid = self._random.choice(pids)
            kill = KilledProcess(component.name, pid, self._clock.wall_ms())
            try:
                self._strike(component, pid)
            except ProcessLookupError:
                _log.info("process %d had ended by itself", pid)
                continue
            self.kills.append(kill)
            return kill
        _log.info("nothing to kill: none of %s runs", ", ".join(c.name for c in self._components))
        return None

    def _strike(self, component: Component, pid: int) -> None:
        if component.may_pause and self._pause_s > 0 and self._random.random() < 0.5:
            seconds_s = self._random.uniform(0.1, self._pause_s)
            _log.info("pausing %s, process %d, for %.1f s", component.name, pid, seconds_s)
            self._timers.append(component.pause(pid, seconds_s))
        else:
            _log.info("killing %s, process %d", component.name, pid)
            component.kill(pid)

    def wait(self) -> None:
        """Until everything that was paused goes on."""
        for timer in self._timers:
            timer.join()
