"""Leadership and cells in memory: the reference that other back ends are compared with, and the one tests use."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.clock import Clock
from grete.coordination.base import Coordination, Holder, Leadership
from grete.coordination.cells import Cell, Cells, below
from grete.coordination.patience import Patience
from grete.errors import CellChanged, HeldByOther, LeadershipLost


@dataclass(slots=True)
class _MemoryRow:
    epoch: int
    holder: Holder
    renewals: int = 0
    is_over: bool = False


@dataclass(slots=True)
class MemoryValues:
    """Cells that clients of one process share, by scope and name."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryCells(Cells):
    """The cells of one scope. Those that are given the same `values` are the same."""

    def __init__(self, values: MemoryValues, scope: str) -> None:
        self._shared = values
        self._scope = scope

    def read(self, name: str) -> Cell | None:
        """See Cells."""
        with self._shared.lock:
            return self._shared.cells.get((self._scope, name))

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """See Cells."""
        with self._shared.lock:
            return {
                name: cell
                for (scope, name), cell in self._shared.cells.items()
                if scope == self._scope and name.startswith(below(prefix))
            }

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """See Cells."""
        with self._shared.lock:
            self._check(name, expected)
            self._shared.writes += 1
            written = Cell(value, str(self._shared.writes))
            self._shared.cells[self._scope, name] = written
            return written

    def delete(self, name: str, expected: str) -> None:
        """See Cells."""
        with self._shared.lock:
            self._check(name, expected)
            del self._shared.cells[self._scope, name]

    def _check(self, name: str, expected: str | None) -> None:
        cell = self._shared.cells.get((self._scope, name))
        if (None if cell is None else cell.version) != expected:
            raise CellChanged(name)

    def close(self) -> None:
        """See Cells."""


@dataclass(slots=True)
class MemoryLeaderships:
    """State that contenders of one process share."""

    rows: dict[str, _MemoryRow] = field(default_factory=dict)
    values: MemoryValues = field(default_factory=MemoryValues)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryCoordination(Coordination):
    """One contender. Contenders that are given the same `leaderships` compete."""

    def __init__(
        self, clock: Clock, *, leaderships: MemoryLeaderships | None = None, ttl_s: float = 15.0
    ) -> None:
        self._clock = clock
        self._shared = leaderships or MemoryLeaderships()
        self._patience = Patience(clock, ttl_s=ttl_s)

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination."""
        asked_s = self._clock.monotonic_s()
        with self._shared.lock:
            row = self._shared.rows.get(scope)
            held = None if row is None or row.is_over or take_over else row
            if held is not None and not self._patience.is_over(scope, held.epoch, held.renewals):
                raise HeldByOther(scope, held.holder.described())
            epoch = max(0 if row is None else row.epoch, epoch_floor) + 1
            me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, self._clock.wall_ms())
            self._shared.rows[scope] = _MemoryRow(epoch, me)
        return Leadership(scope, epoch, me.incarnation, self._patience.until_s(asked_s))

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination."""
        asked_s = self._clock.monotonic_s()
        with self._shared.lock:
            row = self._mine(leadership)
            if row is None:
                return None
            row.renewals += 1
        return Leadership(
            leadership.scope, leadership.epoch, leadership.incarnation, self._patience.until_s(asked_s)
        )

    def release(self, leadership: Leadership) -> None:
        """See Coordination."""
        with self._shared.lock:
            row = self._mine(leadership)
            if row is not None:
                row.is_over = True

    def _mine(self, leadership: Leadership) -> _MemoryRow | None:
        row = self._shared.rows.get(leadership.scope)
        if row is None or row.is_over or row.holder.incarnation != leadership.incarnation:
            return None
        return row

    def forget(self, leadership: Leadership) -> None:
        """See Coordination."""
        with self._shared.lock:
            if self._mine(leadership) is None:
                raise LeadershipLost(f"{leadership.scope} is led by another process: it is not forgotten")
            del self._shared.rows[leadership.scope]
        self.cells(leadership.scope).clear()

    def holder(self, scope: str) -> Holder | None:
        """See Coordination."""
        with self._shared.lock:
            row = self._shared.rows.get(scope)
            return None if row is None or row.is_over else row.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination."""
        with self._shared.lock:
            row = self._shared.rows.get(scope)
            return None if row is None or row.is_over else row.epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination."""
        with self._shared.lock:
            row = self._shared.rows.get(scope)
            if row is None or row.is_over:
                return False
            return self._patience.is_over(scope, row.epoch, row.renewals)

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return MemoryCells(self._shared.values, scope)

    def close(self) -> None:
        """See Coordination."""
