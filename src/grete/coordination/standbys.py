"""Which coordinators stand by for a scope, in its cells: for people, who decide whether the leader may step down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import orjson

from grete.clock import Clock
from grete.coordination.base import Holder
from grete.coordination.cells import Cells, cell_name, remove
from grete.errors import CellChanged

_STANDBY = cell_name("standby")
_GONE_AFTER = 10
"""Intervals without a word after which the cell of one that died is removed by others."""


class StandbyNotice:
    """The cell of one process that stands by, written again at intervals while `renew` is called."""

    def __init__(self, cells: Cells, me: Holder, clock: Clock, *, every_s: float) -> None:
        self._cells = cells
        self._me = me
        self._clock = clock
        self._every_s = every_s
        self._name = cell_name("standby", me.incarnation)
        self._version: str | None = None
        self._due_s = clock.monotonic_s()

    def renew(self) -> None:
        """Write it, if that is due.

        Raises:
            GreteError: the service does not answer, or does not let us.
        """
        if self._clock.monotonic_s() < self._due_s:
            return
        self._due_s = self._clock.monotonic_s() + self._every_s
        now_ms = self._clock.wall_ms()
        if self._version is None:
            self._remove_gone(now_ms)
        value = orjson.dumps(asdict(replace(self._me, heard_ms=now_ms)))
        try:
            self._version = self._cells.write(self._name, value, self._version).version
        except CellChanged:  # our own write, whose answer did not come; or it was removed
            found = self._cells.read(self._name)
            self._version = None if found is None else found.version

    def _remove_gone(self, now_ms: int) -> None:
        for name, cell in self._cells.read_all(_STANDBY).items():
            heard_ms = _decode(cell.value).heard_ms or 0
            if now_ms - heard_ms > _GONE_AFTER * self._every_s * 1000:
                remove(self._cells, name, cell)

    def end(self) -> None:
        """Remove it."""
        if self._version is not None:
            self._cells.delete(self._name, self._version)


def standbys(cells: Cells, clock: Clock, *, within_s: float) -> Sequence[Holder]:
    """Those that were heard of within so long, by their clocks and ours, the first to begin first."""
    since_ms = clock.wall_ms() - within_s * 1000
    found = [_decode(cell.value) for cell in cells.read_all(_STANDBY).values()]
    return sorted((one for one in found if (one.heard_ms or 0) >= since_ms), key=lambda one: one.since_ms)


def _decode(value: bytes) -> Holder:
    return Holder(**orjson.loads(value))
