"""Offsets that a share has passed without a record, as marks of transactions, until checkpoints name them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from grete.clock import Clock

_PASSED_S = 1.0
"""After this time a checkpoint is made for them alone."""


class PassedOffsets:
    """By the numbers of SSPs. Used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_offsets: dict[int, int] = {}
        self._since_s = 0.0

    def __bool__(self) -> bool:
        """Whether checkpoints do not name them all."""
        return bool(self._next_offsets)

    def add(self, index: int, next_offset: int) -> None:
        """All before `next_offset` was passed."""
        if not self._next_offsets:
            self._since_s = self._clock.monotonic_s()
        self._next_offsets[index] = next_offset

    def discard(self, index: int) -> None:
        """A record has come after it."""
        self._next_offsets.pop(index, None)

    def clear(self) -> None:
        """Nothing was passed."""
        self._next_offsets.clear()

    def take_due(
        self, readers_of: Callable[[int], Sequence[int]], at_work: Collection[int], *, is_at_the_end: bool
    ) -> Iterator[tuple[int, int]]:
        """(SSP, next offset) of those that the next checkpoints are to name: with those of all tasks that read the
        SSP when they are made anyway, or after a while by themselves. They are not held any more."""
        if not self._next_offsets:
            return
        is_due = self._clock.monotonic_s() >= self._since_s + _PASSED_S or is_at_the_end
        for index, next_offset in list(self._next_offsets.items()):
            if is_due or all(task in at_work for task in readers_of(index)):
                del self._next_offsets[index]
                yield index, next_offset
