"""Leadership in a journal: a row for each scope, changed in a transaction."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, replace

from tests.toys.journal import Journal, Line, State, encoded
from tests.toys.log import journal_of

from grete.clock import Clock
from grete.coordination.base import Coordination, Holder, Leadership
from grete.coordination.cells import Cell, Cells, below
from grete.coordination.factory import CoordinationContext
from grete.coordination.patience import Patience
from grete.errors import CellChanged, HeldByOther, LeadershipLost


def open_coordination(context: CoordinationContext) -> JournalCoordination:
    journal = journal_of(context.settings, context.system, context.home)
    return JournalCoordination(journal, context.clock, ttl_s=context.ttl_s)


class JournalCoordination(Coordination):
    def __init__(self, journal: Journal, clock: Clock, *, ttl_s: float) -> None:
        self._journal = journal
        self._clock = clock
        self._patience = Patience(clock, ttl_s=ttl_s)

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        asked_s = self._clock.monotonic_s()
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, self._clock.wall_ms())

        def transaction(state: State) -> Line:
            epoch, holder, renewals = state.leaders.get(scope, (0, None, 0))
            if holder is not None and not take_over and not self._patience.is_over(scope, epoch, renewals):
                raise HeldByOther(scope, Holder(**holder).described())
            return {"leaders": {scope: (max(epoch, epoch_floor) + 1, asdict(me), 0)}}

        epoch = self._journal.write(transaction).leaders[scope][0]
        return Leadership(scope, epoch, me.incarnation, self._patience.until_s(asked_s))

    def renew(self, leadership: Leadership) -> Leadership | None:
        asked_s = self._clock.monotonic_s()
        if not self._change(leadership, is_over=False):
            return None
        return replace(leadership, valid_until_s=self._patience.until_s(asked_s))

    def release(self, leadership: Leadership) -> None:
        self._change(leadership, is_over=True)

    def _change(self, leadership: Leadership, *, is_over: bool) -> bool:
        was_mine = []

        def transaction(state: State) -> Line:
            epoch, holder, renewals = state.leaders.get(leadership.scope, (0, None, 0))
            if holder is None or holder["incarnation"] != leadership.incarnation:
                return {}
            was_mine.append(True)
            return {"leaders": {leadership.scope: (epoch, None if is_over else holder, renewals + 1)}}

        self._journal.write(transaction)
        return bool(was_mine)

    def forget(self, leadership: Leadership) -> None:
        def transaction(state: State) -> Line:
            _, holder, _ = state.leaders.get(leadership.scope, (0, None, 0))
            if holder is None or holder["incarnation"] != leadership.incarnation:
                raise LeadershipLost(f"{leadership.scope} is led by another process: it is not forgotten")
            names = [name for scope, name in state.cells if scope == leadership.scope]
            cells = [(leadership.scope, name, None) for name in names]
            return {"forgotten": leadership.scope, "cells": cells}

        self._journal.write(transaction)

    def holder(self, scope: str) -> Holder | None:
        held = self._journal.look().leaders.get(scope)
        return None if held is None or held[1] is None else Holder(**held[1])

    def leading_epoch(self, scope: str) -> int | None:
        held = self._journal.look().leaders.get(scope)
        return None if held is None or held[1] is None else held[0]

    def is_silent(self, scope: str) -> bool:
        epoch, holder, renewals = self._journal.look().leaders.get(scope, (0, None, 0))
        return holder is not None and self._patience.is_over(scope, epoch, renewals)

    def cells(self, scope: str) -> Cells:
        return JournalCells(self._journal, scope)

    def close(self) -> None:
        self._journal.close()


class JournalCells(Cells):
    def __init__(self, journal: Journal, scope: str) -> None:
        self._journal = journal
        self._scope = scope

    def read(self, name: str) -> Cell | None:
        return cell_of(self._journal.look().cells.get((self._scope, name)))

    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        return {
            name: Cell(value, str(number))
            for (scope, name), (value, number) in self._journal.look().cells.items()
            if scope == self._scope and name.startswith(below(prefix))
        }

    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        return Cell(value, str(self._set(name, value, expected).cell_writes))

    def delete(self, name: str, expected: str) -> None:
        self._set(name, None, expected)

    def _set(self, name: str, value: bytes | None, expected: str | None) -> State:
        def transaction(state: State) -> Line:
            cell = cell_of(state.cells.get((self._scope, name)))
            if (None if cell is None else cell.version) != expected:
                raise CellChanged(name)
            return {"cells": [(self._scope, name, encoded(value))]}

        return self._journal.write(transaction)

    def close(self) -> None:
        pass


def cell_of(found: tuple[bytes, int] | None) -> Cell | None:
    return None if found is None else Cell(found[0], str(found[1]))
