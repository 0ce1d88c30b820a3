"""Figures of shares on the page of their stage in Spark, whose own columns count rows and so stay empty.

Shares report to their container while they run; a task's own accumulators would arrive with its end. So the driver
sets the stage's accumulables, which pages, REST API and event log show (decision 16).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark import SparkContext

from grete.spark.jvm import java_context, jvm_of
from grete.tasks.shares import Committed

_log = logging.getLogger("grete.container")
_EVERY_S = 2.0
_FIGURES = ("records", "bytes of input", "commits", "milliseconds in commits")


class StageFigures:
    """The figures of the shares of one epoch. One thread adds, and one shows."""

    def __init__(self, context: SparkContext, group: str) -> None:
        """`group` is the job group of the epoch's only job."""
        self._context = context
        self._group = group
        self._values = dict.fromkeys(_FIGURES, 0)
        self._has_changed = False
        self._due_s = 0.0
        self._is_refused = False

    def add(self, made: Committed) -> None:
        """Count commits of a share."""
        seconds = max((report.commit_s for report in made.reports), default=0.0)  # the same in all
        gained = (
            sum(report.records for report in made.reports),
            made.bytes,
            made.commits,
            round(1000 * seconds),
        )
        for figure, value in zip(_FIGURES, gained, strict=True):
            self._values[figure] += value
        self._has_changed = True

    def show(self) -> None:
        """Show what was counted, each two seconds. Pages take it over with Spark's next event of the stage."""
        if not self._has_changed or time.monotonic() < self._due_s or self._is_refused:
            return
        self._has_changed, self._due_s = False, time.monotonic() + _EVERY_S
        try:
            self._set()
        except Py4JError as error:  # none of this is a promise of Spark's
            self._is_refused = True
            _log.debug("Spark's pages show no figures of shares: %s", error)

    def _set(self) -> None:
        jvm, java = jvm_of(self._context), java_context(self._context)
        if jvm is None or java is None:
            return  # it was closed
        context = java.sc()
        of_scala, info = jvm.scala.Option.apply, jvm.org.apache.spark.scheduler.AccumulableInfo
        stages, nothing = context.dagScheduler().stageIdToStage(), of_scala(None)
        for number in filter(stages.contains, self._stages()):
            shown = stages.apply(number).latestInfo().accumulables()
            for place, (figure, value) in enumerate(self._values.items(), 1):
                named = of_scala(figure), nothing, of_scala(f"{value:,}")
                shown.put(-place, info(-place, *named, False, False, nothing))  # Spark's own ids begin at 0

    def _stages(self) -> Iterator[int]:
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            found = tracker.getJobInfo(job)
            yield from () if found is None else found.stageIds
