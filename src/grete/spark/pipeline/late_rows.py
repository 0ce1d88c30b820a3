"""Rows that Spark dropped as late, which it says nowhere but in a figure: a warning in the container's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from grete.clock import SystemClock

_log = logging.getLogger("grete.container")
_CLOCK = SystemClock()
_EVERY_S = 600.0


class LateRows:
    """Says at once that rows were dropped, then every ten minutes at most, and at the end, how many more were."""

    def __init__(self, now_s: Callable[[], float] = _CLOCK.monotonic_s) -> None:
        self._now_s = now_s
        self._dropped = 0
        self._next_s = 0.0
        self._batch: object = "?"
        self._watermark = "unknown"

    def note(self, report: Mapping[str, Any]) -> None:
        """Take note of a report of Spark's."""
        self._dropped += dropped_rows(report)
        self._batch = report.get("batchId", self._batch)
        self._watermark = report.get("eventTime", {}).get("watermark", self._watermark)
        if self._now_s() >= self._next_s:
            self.say()

    def say(self) -> None:
        """Say what was not said yet, as at the end of a query."""
        if not self._dropped:
            return
        _log.warning(
            "batch %s: Spark has dropped %d rows as late, older than the watermark (%s now); rows that were "
            "aggregated before count as one. A longer delay in withWatermark takes later rows, and keeps more state; "
            "a backlog in which some partitions are older than others is read in the order of offsets, not of time",
            *(self._batch, self._dropped, self._watermark),
        )
        self._dropped, self._next_s = 0, self._now_s() + _EVERY_S


def dropped_rows(report: Mapping[str, Any]) -> int:
    """How many rows the operators of a batch dropped, as Spark counts them."""
    return sum(int(one.get("numRowsDroppedByWatermark", 0)) for one in report.get("stateOperators", ()))
