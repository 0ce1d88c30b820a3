"""How many records a pipeline's batch has at most, from how long batches take: pure, as `sizing`.

A lag target is not kept by batches that take as long as it. The rule, for batches that were full:

1. One took longer than the lag target, or all of a while more than half of it: a quarter of it is what the next take.
2. All of a while took less than an eighth of it, and two more were waiting all the time: up to a quarter of it again,
   four times as many at most, and never more than `task.max.records.per.batch` says.

Between a half and an eighth there is room for a pace that changes, so that one is not undone by the other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from grete.coordinator.figure_file import Figures

_FULL, _TOO_FULL = 0.9, 1.5
"""More was in a batch that began under another limit, or a heartbeat has the records of two and the time of one."""
_ABOUT = 1.1
_LEAST = 100
"""Fewer records are no shorter batch: then it is what a batch takes by itself."""
_GROWS = 4
_WORTH = 1.25


@dataclass(frozen=True, slots=True)
class BatchRule:
    """`most` records are what the configuration allows, `after_s` is the while of the rule."""

    most: int
    lag_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Another number of records than batches have at most, and why in words with figures."""

    records: int
    why: str
    before: int

    def __str__(self) -> str:
        return f"{self.before} to {self.records} records a batch: {self.why}"


class BatchSizer:
    """Follows the batches of one pipeline."""

    def __init__(self, rule: BatchRule) -> None:
        self.rule = rule
        self._limit = 0
        self._full: deque[tuple[float, float, float]] = deque()
        self._waited_since_s: float | None = None

    def observe(self, now: Figures, limit: int) -> BatchSize | None:
        """Take in figures, later than those before, with the limit that holds; another one if it is needed now."""
        if limit != self._limit:
            self._limit = limit
            self._full.clear()
        if (now.behind or 0) < 2 * limit:
            self._waited_since_s = None
        elif self._waited_since_s is None:
            self._waited_since_s = now.at_s
        if now.commit_s and now.per_commit is not None and _FULL <= now.per_commit / limit <= _TOO_FULL:
            self._full.append((now.at_s, now.commit_s, now.per_commit / now.commit_s))
        while self._full and now.at_s - self._full[0][0] > _ABOUT * max(self.rule.after_s, self.rule.lag_s):
            self._full.popleft()
        return self._shorter() or self._longer(now.at_s)

    def _shorter(self) -> BatchSize | None:
        if not self._full:
            return None
        took_s = [seconds for _, seconds, _ in self._full]
        is_late = took_s[-1] > self.rule.lag_s or (self._has_lasted() and min(took_s) > self.rule.lag_s / 2)
        wanted = max(self._quarter(), min(_LEAST, self._limit))
        return self._sized(wanted) if is_late and wanted * _WORTH < self._limit else None

    def _longer(self, now_s: float) -> BatchSize | None:
        waited_s = 0.0 if self._waited_since_s is None else now_s - self._waited_since_s
        is_short = self._has_lasted() and max(seconds for _, seconds, _ in self._full) < self.rule.lag_s / 8
        wanted = min(self._quarter(), _GROWS * self._limit, self.rule.most) if self._full else 0
        grows = is_short and _ABOUT * waited_s >= self.rule.after_s and wanted > _WORTH * self._limit
        return self._sized(wanted) if grows else None

    def _has_lasted(self) -> bool:
        return bool(self._full) and _ABOUT * (self._full[-1][0] - self._full[0][0]) >= self.rule.after_s

    def _quarter(self) -> int:
        """What was processed in a quarter of the lag target, in the last full batches."""
        return round(self._full[-1][2] * self.rule.lag_s / 4)

    def _sized(self, wanted: int) -> BatchSize:
        _, took_s, pace = self._full[-1]
        why = (
            f"a full batch took {took_s:.0f} s, {pace:.0f} records/s; the lag target is {self.rule.lag_s:g} s"
        )
        before, self._limit = self._limit, 0
        return BatchSize(wanted, why, before)
