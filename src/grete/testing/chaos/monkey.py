"""Picks a victim, kills it, writes it down, waits. The same seed picks the same kinds of victims."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from grete.clock import Clock
from grete.testing.chaos.components import Component

_log = logging.getLogger("grete.chaos")


@dataclass(frozen=True, slots=True)
class Kill:
    """One process that was killed."""

    component: str
    pid: int
    wall_ms: int


class Monkey:
    """Kills one process a round."""

    def __init__(self, components: Sequence[Component], *, seed: int, clock: Clock) -> None:
        self._components = list(components)
        self._random = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._clock = clock
        self.kills: list[Kill] = []

    def strike(self) -> Kill | None:
        """Kill a process of a random component, or of another when none of it runs; None when nothing runs."""
        order = self._random.sample(self._components, len(self._components))
        for component in order:
            pids = component.pids()
            if not pids:
                continue
            pid = self._random.choice(pids)
            kill = Kill(component.name, pid, self._clock.wall_ms())
            _log.info("killing %s, process %d", component.name, pid)
            try:
                component.kill(pid)
            except ProcessLookupError:
                _log.info("process %d had ended by itself", pid)
                continue
            self.kills.append(kill)
            return kill
        _log.info("nothing to kill: none of %s runs", ", ".join(c.name for c in self._components))
        return None
