"""Leadership and cells in memory: the reference that other back ends are compared with, and the one tests use."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.clock import Clock
from grete.coordination.base import Leadership
from grete.coordination.cells import Cell, Cells, below
from grete.coordination.observed import Decide, ObservedElection, Term, TermRegister
from grete.errors import CellChanged, CoordinationUnreachable, LeadershipLost


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

    terms: dict[str, Term] = field(default_factory=dict)
    values: MemoryValues = field(default_factory=MemoryValues)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryCoordination(ObservedElection):
    """One contender. Contenders that are given the same `leaderships` compete."""

    def __init__(
        self, clock: Clock, *, leaderships: MemoryLeaderships | None = None, ttl_s: float = 15.0
    ) -> None:
        super().__init__(MemoryTerms(leaderships or MemoryLeaderships()), clock, ttl_s=ttl_s)


class MemoryTerms(TermRegister):
    """The terms of contenders in one process."""

    UNANSWERED = CoordinationUnreachable

    def __init__(self, shared: MemoryLeaderships) -> None:
        self._shared = shared

    def read(self, scope: str, *, is_settled: bool = False) -> Term | None:
        """See TermRegister."""
        with self._shared.lock:
            return self._shared.terms.get(scope)

    def change(
        self, scope: str, decide: Decide, timeout_s: float, mine: Leadership | None = None
    ) -> Term | None:
        """See TermRegister."""
        with self._shared.lock:
            before = self._shared.terms.get(scope)
            after = decide(before)
            if after is None:
                return before
            self._shared.terms[scope] = after
            return after

    def remove(self, leadership: Leadership) -> None:
        """See TermRegister."""
        with self._shared.lock:
            term = self._shared.terms.get(leadership.scope)
            if term is None or not term.is_held_by(leadership):
                raise LeadershipLost(f"{leadership.scope} is led by another process: it is not forgotten")
            del self._shared.terms[leadership.scope]
        self.cells(leadership.scope).clear()

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return MemoryCells(self._shared.values, scope)

    def close(self) -> None:
        """See TermRegister."""
