"""A job that does what the rule of autosizing wants, over made-up loads, in no time: a model of its queues alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from grete.coordinator.figure_file import Figures
from grete.coordinator.sizing import Sizer, Sizing, SizingRule

STEP_S, HOUR_S, DAY_S = 10.0, 3600.0, 86_400.0
RULE = SizingRule(least=1, most=16, lag_s=60, utilization=0.7, up_after_s=60, down_after_s=900, cores=1)
OF_ONE = 1_000.0
"""Records that a container processes a second."""
Load = Callable[[float], float]


@dataclass
class SizedJob:
    """A job of 16 partitions that does what its sizer wants, some seconds later; partition 0 has its own share."""

    load: Load
    rule: SizingRule = RULE
    hot: float = 1 / 16
    sink: float = math.inf
    """Records that its output takes a second, whatever the size."""
    containers: int = 1
    changes: list[tuple[float, Sizing]] = field(default_factory=list)
    late_s: float = 0.0
    container_s: float = 0.0
    trace: list[tuple[float, float, float, int]] = field(default_factory=list)
    """Of each step: when, what arrives a second, for how many seconds of work it is behind, containers."""

    def run(self, seconds: float) -> SizedJob:
        """Let so much time pass."""
        sizer, left, moving_s = Sizer(self.rule), [0.0] * 16, 0.0
        for step in range(int(seconds / STEP_S)):
            at_s = step * STEP_S
            shares = [self.hot, *[(1 - self.hot) / 15] * 15]
            for partition, share in enumerate(shares):
                left[partition] += self.load(at_s) * STEP_S * share
            moving_s = max(0.0, moving_s - STEP_S)
            done = 0.0 if moving_s else self._process(left)
            behind = sum(left)
            pace = max(done / STEP_S, self.load(at_s), 1e-9)
            self.trace.append((at_s, self.load(at_s), behind / pace, self.containers))
            self.container_s += self.containers * STEP_S
            self.late_s += (
                STEP_S if behind > max(done / STEP_S, self.load(at_s)) * 2 * self.rule.lag_s else 0.0
            )
            cpu = done / STEP_S / OF_ONE
            figures = Figures(at_s, int(behind), done / STEP_S, 0.2, self.containers, int(max(left)), cpu)
            if (sizing := sizer.observe(figures)) is not None:
                assert sizing.containers != self.containers
                self.changes.append((at_s, sizing))
                self.containers, moving_s = sizing.containers, 20.0
        return self

    def _process(self, left: list[float]) -> float:
        """Each container its partitions, all of them at one pace; it lends nothing of it to another one."""
        done = 0.0
        for container in range(self.containers):
            own = range(container, 16, self.containers)
            waiting = sum(left[partition] for partition in own)
            pace = min(1.0, OF_ONE * STEP_S / waiting, self.sink * STEP_S / sum(left)) if waiting else 0.0
            for partition in own:
                left[partition] *= 1 - pace
            done += waiting * pace
        return done


def wave(at_s: float) -> float:
    """A day: 500 records/s at night, 8,000 at noon."""
    return 4_250 - 3_750 * math.cos(2 * math.pi * at_s / DAY_S)
