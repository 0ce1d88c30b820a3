"""The offsets that a consumer group should have of a container's inputs, and when they are written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

INTERVAL_S = 1.0
"""Tools look every few seconds; a job of small batches would else commit more for them than for itself."""
RETRY_S = 5.0
REFRESH_S = 3_600.0
"""Brokers forget offsets after `offsets.retention.minutes`, by default a week, those of a quiet input, too."""

NextOffsets = Mapping[str, int]
"""The next record to read of each SSP, by its text: hashing SSPs takes ten times as long, in every batch."""


class GroupProgress:
    """The inputs of a container: their offsets, and those that were published to the group.

    Times are seconds of a monotonic clock.
    """

    def __init__(self, tasks: Sequence[Sequence[str]], start: NextOffsets) -> None:
        """`start` has the SSPs that are shown; `tasks` are those of each task by its index."""
        self._tasks = tasks
        self._wanted = dict(start)
        self._published: dict[str, int] = {}
        self._standing: set[str] = set()
        self._next_s, self._refresh_s = float("-inf"), float("inf")
        self.is_failing = False

    def move(self, offsets: NextOffsets, shut_down: Iterable[int] = ()) -> None:
        """A batch that ends at `offsets` is committed; `shut_down` are tasks that take part in no later one.

        The inputs of such a task stay where they were then: it processes nothing, though batches go on over them.
        """
        for ssp in self._wanted:
            if ssp in offsets and ssp not in self._standing:
                self._wanted[ssp] = offsets[ssp]
        for task in shut_down:
            self._standing.update(self._tasks[task])

    def due(self, now_s: float) -> dict[str, int]:
        """The offsets to write at this moment; empty when it is too early or there is nothing."""
        return self.outstanding(now_s) if now_s >= self._next_s else {}

    def outstanding(self, now_s: float) -> dict[str, int]:
        """The offsets that the group lacks, or got long ago, however short ago the last write was."""
        if now_s >= self._refresh_s:
            return dict(self._wanted)
        return {ssp: offset for ssp, offset in self._wanted.items() if self._published.get(ssp) != offset}

    def pause_s(self, now_s: float) -> float:
        """How long nothing is due, if nothing moves; zero or less when something is."""
        due_s = self._next_s if self.outstanding(now_s) else self._refresh_s
        return min(due_s - now_s, REFRESH_S)

    def written(self, offsets: NextOffsets, now_s: float) -> None:
        """The group says `offsets` now."""
        if not self._published or now_s >= self._refresh_s:
            self._refresh_s = now_s + REFRESH_S
        self._published.update(offsets)
        self._next_s = now_s + INTERVAL_S
        self.is_failing = False

    def failed(self, offsets: NextOffsets, now_s: float) -> None:
        """A write of `offsets` failed; the group may or may not have them."""
        for ssp in offsets:
            self._published.pop(ssp, None)
        self._next_s = now_s + RETRY_S
        self.is_failing = True
