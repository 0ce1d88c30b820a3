"""How much is taken at once and goes into one commit, how often there is one, and when windows are due."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grete.clock import Clock
from grete.config.settings import Settings
from grete.tasks.spec import RunnerSpec


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one share. `commit_s` is the least time between the beginnings of two commits; 0 `bytes` is no limit.

    `in_progress` messages of an AsyncStreamTask at once, each for `message_s`, None is any time.
    """

    records: int
    bytes: int
    commit_s: float
    window_ms: int
    in_progress: int
    message_s: float | None

    @classmethod
    def of(cls, spec: RunnerSpec, commit_s: float | None, records: int | None) -> Limits:
        """As the configuration has them; what is given goes before it."""
        task = Settings.of(spec.config).task
        if commit_s is None:
            interval_ms = task.commit_interval_ms
            commit_s = math.inf if interval_ms < 0 else interval_ms / 1000
        at_most = records or task.max_records_per_batch
        timeout_ms = task.callback_timeout_ms
        return cls(
            at_most,
            task.max_bytes_per_batch,
            commit_s,
            max(0, task.window_ms),
            task.max_concurrency,
            timeout_ms / 1000 if timeout_ms > 0 else None,
        )

    def are_reached(self, records: int, size: int) -> bool:
        """Whether so many records of `size` bytes together are enough for a commit."""
        return records >= self.records or 0 < self.bytes <= size


_AT_ONCE_S = 0.2
_ROWS_AT_ONCE = (1_000, 10_000)
_GROWTH = 4


class Pace:
    """How many records a share takes at once: other tasks and a stop wait for what took `_AT_ONCE_S` before."""

    def __init__(self) -> None:
        self.rows, self._at_most = _ROWS_AT_ONCE

    def note(self, rows: int, took_s: float) -> None:
        """So many records took so long."""
        if rows:
            fitting = int(rows * _AT_ONCE_S / took_s) if took_s > 0 else self._at_most
            self.rows = max(1, min(fitting, _GROWTH * self.rows, self._at_most))


class Windows:
    """When `StreamTask.window` is due: at whole multiples of the interval on the wall clock, in all tasks at once."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        """0 is never."""
        self._clock = clock
        self._interval_ms = interval_ms
        self._taken = self._number()

    def _number(self) -> int:
        return self._clock.wall_ms() // self._interval_ms if self._interval_ms > 0 else 0

    def until_s(self) -> float:
        """How long until it is due."""
        if self._interval_ms <= 0:
            return float("inf")
        return max(0, (self._taken + 1) * self._interval_ms - self._clock.wall_ms()) / 1000

    def take(self) -> bool:
        """Whether it is due; once for any number of intervals."""
        number = self._number()
        is_due = number != self._taken
        self._taken = number
        return is_due
