"""The timers of a task: kept where its instance is."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count

from grete.errors import IllegalStateError


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
