"""Decides how many containers a running job has, where its configuration leaves that to the coordinator."""

from __future__ import annotations

import logging

from grete.clock import Clock
from grete.config.settings import Settings
from grete.config.settings.autosizing import AutosizingSettings
from grete.coordinator.figure_meter import FigureMeter
from grete.coordinator.sizing import Sizer, Sizing, SizingRule
from grete.coordinator.view import View
from grete.model.job import TaskMode

_log = logging.getLogger("grete.coordinator")
_EVERY_S = 10.0


def rule_of(autosizing: AutosizingSettings, tasks: int) -> SizingRule:
    """The rule of a job with so many tasks: a container more would have none."""
    most = tasks if autosizing.most is None else min(autosizing.most, tasks)
    return SizingRule(
        min(autosizing.least, most),
        most,
        autosizing.lag_s,
        autosizing.utilization,
        autosizing.up_after_s,
        autosizing.down_after_s,
    )


class Autosizer:
    """Looks at the figures of a job every ten seconds. Used by the loop's thread.

    A coordinator that takes over begins to look anew: what its predecessor has decided is in the configuration, and
    what it knew of the job's containers is measured again before the next decision.
    """

    def __init__(self, view: View, clock: Clock, every_s: float = _EVERY_S) -> None:
        self._view = view
        self._clock = clock
        self._meter = FigureMeter(view, clock)
        self._every_s = every_s
        self._next_s = clock.monotonic_s()
        self._rule: SizingRule | None = None
        self._sizer: Sizer | None = None

    @property
    def standing(self) -> str:
        """What it does, or why it does nothing; empty where it decides nothing."""
        return "" if self._sizer is None else self._sizer.standing

    def look(self, settings: Settings) -> Sizing | None:
        """Another size, if one is needed now. Called as often as one likes."""
        if not settings.autosizing.decides:
            self._sizer = self._rule = None
            return None
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s or not self._view.containers.is_ready():
            return None
        self._next_s = now_s + self._every_s
        _, model = self._view.containers.serving()
        tasks = [task for task in model.tasks.values() if task.mode is TaskMode.ACTIVE]
        rule = rule_of(settings.autosizing, len(tasks))
        if self._sizer is None or rule != self._rule:
            self._sizer, self._rule = Sizer(rule), rule
        figures, asked = self._meter.measure(), settings.job.container_count
        if figures.containers != asked:
            self._sizer.wait(asked)
            return None
        before = self._sizer.standing
        sizing = self._sizer.observe(figures._replace(at_s=now_s))
        if sizing is None and self._sizer.standing != before:
            _log.debug("autosizing %s", self._sizer.standing)
        return sizing
