"""Calls of tasks beside their messages: `window`, `on_timer` for what a task has scheduled, `on_end_of_stream`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from grete.clock import Clock
from grete.tasks.share_limits import Windows

if TYPE_CHECKING:
    from grete.tasks.runner import TaskRun
    from grete.tasks.runtime import TaskWorkers


class DueCalls:
    """Makes the calls that are due in the tasks of a share. Used by one thread."""

    def __init__(
        self, workers: TaskWorkers, clock: Clock, window_ms: int, *, calls_ends: bool = True
    ) -> None:
        """`window_ms` of 0 or less is no `window`; with `calls_ends` tasks are called at the end of their inputs."""
        self._calls_ends = calls_ends
        self._workers = workers
        self._clock = clock
        self._windows = Windows(clock, window_ms)
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether tasks that want to be called at the end of their inputs were."""
        return self._has_ended or not (self._calls_ends and self._workers.hears_ends)

    def drop(self) -> None:
        """What tasks did last was not committed: they are called again at the end of their inputs."""
        self._has_ended = False

    def until_s(self, tasks: Iterable[int]) -> float:
        """How long nothing is due, by the clock that people read."""
        until_s = self._windows.until_s()
        at_ms = min(self._timers_ms(tasks), default=None) if self._workers.has_timers else None
        return until_s if at_ms is None else min(until_s, max(0, at_ms - self._clock.wall_ms()) / 1000)

    def _timers_ms(self, tasks: Iterable[int]) -> Iterator[int]:
        for task in tasks:
            next_ms = self._workers.next_timer_ms(task) if self._workers.is_open(task) else 0
            if next_ms is not None:
                yield next_ms

    def make(
        self, tasks: Iterable[int], run_of: Callable[[int], TaskRun], *, is_at_the_end: bool = False
    ) -> None:
        """Make the calls that are due; a task that takes part is asked for with `run_of`."""
        if self._workers.has_timers:
            self._call_timers(tasks, run_of)
        if self._windows.take():
            for task in tasks:
                run_of(task).window()
        if is_at_the_end and not self.has_ended:
            self._has_ended = True
            for task in tasks:
                run_of(task).end_of_stream()

    def _call_timers(self, tasks: Iterable[int], run_of: Callable[[int], TaskRun]) -> None:
        """Those that are due; a task that is not open is opened, since it may schedule some in `init`."""
        now_ms = self._clock.wall_ms()
        for task in tasks:
            if not self._workers.is_open(task):
                run_of(task)
            next_ms = self._workers.next_timer_ms(task)
            if next_ms is not None and next_ms <= now_ms:
                run_of(task).call_timers(now_ms)
