"""How much is taken at once and goes into one commit, how often there is one, and when windows are due."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from grete.clock import Clock
from grete.errors import LogError
from grete.tasks.spec import RunnerSpec

_log = logging.getLogger("grete.container")


@dataclass(frozen=True, slots=True)
class ShareLimits:
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
    def of(cls, spec: RunnerSpec, commit_s: float | None, records: int | None) -> ShareLimits:
        """As the configuration has them; what is given goes before it."""
        task = spec.settings.task
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

    def next_commit_s(self, began_s: float, ended_s: float) -> float:
        """When the next commit may begin, after one from then to then: never, where only tasks ask for it."""
        if self.commit_s == 0:
            return -math.inf  # at once: the caller paces it, and may move the clock
        if self.commit_s == math.inf:
            return math.inf
        return max(began_s + self.commit_s, ended_s + _MARKERS_S)


_MARKERS_S = 0.001
"""Brokers write a transaction's markers after they have answered. The client waits 20 ms when they are not done: of
transactions that followed at once one in ten did, of those that followed after this time one in a hundred."""
_TRIES_ALONE = 3
"""A record whose transaction timed out so often will not be committed: brokers that are away return sooner."""


class CommitSize:
    """How many records go into one commit: fewer after one that took longer than brokers wait for a transaction."""

    def __init__(self, at_most: int, timeout_s: float) -> None:
        """Takes what the configuration says."""
        self.records = self._at_most = at_most
        self._timeout_s = timeout_s
        self._tries = 0

    def note(self, took_s: float) -> None:
        """A commit took so long; where that is a small part of the time that it may take, the next may be larger."""
        self._tries = 0
        if took_s < self._timeout_s / 4:
            self.records = min(2 * self.records, self._at_most)

    def timed_out(self, records: int, size: int) -> None:
        """So many records, with outputs and changes of so many bytes, took too long.

        Raises:
            LogError: it was one record, not for the first time.
        """
        what = (
            f"a transaction of {size:,} bytes, the outputs and changes of stores of {records:,} records, took longer "
            f"than task.commit.transaction.timeout.ms={self._timeout_s * 1000:.0f}, so the brokers gave it up, and "
            f"nothing of it was written"
        )
        together = min(records, self.records)
        self._tries += together <= 1
        if self._tries >= _TRIES_ALONE:
            raise LogError(
                f"{what}, {self._tries} times. It cannot be made smaller: raise task.commit.transaction.timeout.ms, "
                f"or let the application send less for one record"
            )
        self.records = max(1, together // 2)
        _log.warning(
            "%s. They are processed again, with %d records in a transaction at most. For transactions that are small "
            "enough from the beginning lower task.max.records.per.batch or task.max.bytes.per.batch; where the way "
            "to the brokers is slow raise task.commit.transaction.timeout.ms",
            *(what, self.records),
        )


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
