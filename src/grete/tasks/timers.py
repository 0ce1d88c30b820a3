"""Calls of tasks beside their messages: `window`, `on_timer` for what a task has scheduled, `on_end_of_stream`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from grete.clock import Clock
from grete.errors import IllegalStateError
from grete.tasks.share_limits import Windows

if TYPE_CHECKING:
    from grete.tasks.runner import TaskRun
    from grete.tasks.runtime import TaskWorkers


class Timers:
    """Implements `grete.Scheduler` for one instance of a task. Used by one thread."""

    def __init__(self, *, is_heard: bool) -> None:
        """`is_heard` says whether the task has a method that is called for them."""
        self._is_heard = is_heard
        self._numbers = count()
        self._valid: dict[Hashable, int] = {}
        """The number of each key's entry that counts; others in the heap were replaced or deleted."""
        self._heap: list[tuple[int, int, Hashable]] = []

    def schedule(self, key: Hashable, at_ms: int) -> None:
        """See grete.Scheduler."""
        if not self._is_heard:
            raise IllegalStateError(
                f"a timer for {key!r} is scheduled, and the task has no on_timer; define "
                f"on_timer(self, key, collector, coordinator)"
            )
        number = self._valid[key] = next(self._numbers)
        heapq.heappush(self._heap, (at_ms, number, key))

    def delete(self, key: Hashable) -> None:
        """See grete.Scheduler."""
        self._valid.pop(key, None)

    @property
    def next_ms(self) -> int | None:
        """When the next timer is due; None when there is none."""
        while self._heap and self._valid.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Hashable]:
        """The keys that are due, by time, each taken out when it is given.

        What is scheduled meanwhile waits for the next call: a timer that schedules itself for now must not keep
        messages waiting.
        """
        last = next(self._numbers)
        later = []
        while (at_ms := self.next_ms) is not None and at_ms <= now_ms:
            entry = heapq.heappop(self._heap)
            if entry[1] > last:
                later.append(entry)
                continue
            del self._valid[entry[2]]
            yield entry[2]
        for entry in later:
            heapq.heappush(self._heap, entry)


class DueCalls:
    """Makes the calls that are due in the tasks of a share. Used by one thread."""

    def __init__(self, workers: TaskWorkers, clock: Clock, window_ms: int) -> None:
        """`window_ms` of 0 or less is no `window`."""
        self._workers = workers
        self._clock = clock
        self._windows = Windows(clock, window_ms)
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether tasks that want to be called at the end of their inputs were."""
        return self._has_ended or not self._workers.hears_ends

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
