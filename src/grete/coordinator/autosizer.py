"""Decides how many containers or executors a job has, and how many records a pipeline's batch, where its
configuration leaves that to the coordinator."""

from __future__ import annotations

import logging
from dataclasses import replace

from grete.clock import Clock
from grete.config.settings import Settings
from grete.coordinator.batch_sizing import BatchRule, BatchSize, BatchSizer
from grete.coordinator.figure_file import Figures
from grete.coordinator.figure_meter import FigureMeter
from grete.coordinator.sizing import Sizer, Sizing, SizingRule
from grete.coordinator.view import View
from grete.model.job import TaskMode

_log = logging.getLogger("grete.coordinator")
_EVERY_S = 10.0
_GRANTED_S = 120.0
"""A cluster that has not given executors by then has no room for them."""


def rule_of(settings: Settings, tasks: int) -> SizingRule:
    """The rule of a job with so many tasks: a container more would have none. Spark divides a pipeline's further."""
    autosizing = settings.autosizing
    if settings.job.is_pipeline:
        least, most, unit = autosizing.least_executors, autosizing.most_executors or 1, "executor"
    else:
        least, most, unit = autosizing.least, min(autosizing.most or tasks, tasks), "container"
    return SizingRule(
        min(least, most),
        most,
        autosizing.lag_s,
        autosizing.utilization,
        autosizing.up_after_s,
        autosizing.down_after_s,
        unit,
        settings.spark.cores,
    )


def batch_rule_of(settings: Settings) -> BatchRule:
    """The rule of a pipeline's batches."""
    autosizing = settings.autosizing
    return BatchRule(settings.task.max_records_per_batch, autosizing.lag_s, autosizing.up_after_s)


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
        self._batches: BatchSizer | None = None
        self._asked: int | None = None
        self._asked_at_s = 0.0

    @property
    def standing(self) -> str:
        """What it does, or why it does nothing; empty where it decides nothing."""
        return "" if self._sizer is None else self._sizer.standing

    def look(self, settings: Settings) -> Sizing | BatchSize | None:
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
        figures, asked = self._meter.measure(of_executors=settings.job.is_pipeline), _asked(settings)
        if asked != self._asked:
            self._asked, self._asked_at_s = asked, now_s
        rule, there = rule_of(settings, len(tasks)), figures.containers or 0
        is_settled = asked is None or there == asked
        if settings.job.is_pipeline and 0 < there < (asked or 0) and now_s - self._asked_at_s > _GRANTED_S:
            rule, is_settled = replace(rule, least=min(rule.least, there), most=there), True
        if self._sizer is None or rule != self._rule:
            self._sizer, self._rule = Sizer(rule), rule
        if asked is not None and not is_settled:
            self._sizer.wait(asked)
            return None
        figures = figures._replace(at_s=now_s)
        if (batch := self._batch_size(settings, figures)) is not None:
            return batch
        before = self._sizer.standing
        sizing = self._sizer.observe(figures)
        if sizing is None and self._sizer.standing != before:
            _log.debug("autosizing %s", self._sizer.standing)
        return sizing

    def _batch_size(self, settings: Settings, figures: Figures) -> BatchSize | None:
        if not settings.job.is_pipeline:
            return None
        rule = batch_rule_of(settings)
        if self._batches is None or rule != self._batches.rule:
            self._batches = BatchSizer(rule)
        return self._batches.observe(figures, settings.autosizing.batch_records)


def _asked(settings: Settings) -> int | None:
    """As many as there shall be; None of executors before any decision: whatever Spark has begun with."""
    return settings.autosizing.executors if settings.job.is_pipeline else settings.job.container_count
