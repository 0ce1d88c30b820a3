"""What a store had to read of its changelog before its task could go on: in the log, and as figures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from grete.clock import SystemClock

T = TypeVar("T")

_log = logging.getLogger("grete.stores")
_CLOCK = SystemClock()
_MANY = 10_000
"""So many changes take a tenth of a second; the log says beforehand that more of them are read."""
_LONG_S = 1.0


class Restoring:
    """The restores of one store. What is read of a changelog goes through it."""

    def __init__(
        self,
        store: str,
        now_s: Callable[[], float] = _CLOCK.monotonic_s,
        on_restored: Callable[[int, float], None] = lambda changes, seconds: None,
    ) -> None:
        """`store` names it in the log; `on_restored` gets the number of changes, and how long they took."""
        self._store = store
        self._now_s = now_s
        self._on_restored = on_restored

    def begins_anew(self, why: Exception) -> None:
        """The copy on this machine cannot be used, and another one takes its place."""
        _log.info("%s is made anew, since its copy here is no good: %s", self._store, why)

    @contextmanager
    def noted(self, changes: Iterable[T], start: int, end: int) -> Iterator[Iterator[T]]:
        """The changes from `start` on and before `end`, counted while they are read, and the time of the block."""
        read = 0

        def counted() -> Iterator[T]:
            nonlocal read
            for change in changes:
                read += 1
                yield change

        span, began_s = f"offsets {start} to {end - 1} of its changelog", self._now_s()
        is_much = end - start >= _MANY
        if is_much:
            _log.info("%s is being restored: %s", self._store, span)
        yield counted()
        took_s = self._now_s() - began_s
        self._on_restored(read, took_s)
        if is_much or took_s >= _LONG_S:
            _log.info("%s is restored: %d changes, %s, in %.1f s", self._store, read, span, took_s)
