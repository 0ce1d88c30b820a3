"""Samza's lock, latch and barrier of a versioned hand-over, over the elections and cells of any service.

They are for programs of your own, as Samza's `CoordinationUtils` were (S3): no part of grete uses them. Membership,
which coordinators that stand by use, is in `grete.coordination.membership`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from enum import Enum

import orjson

from grete.clock import Deadline
from grete.coordination.base import Coordination, Leadership
from grete.coordination.cells import Cell, Cells, cell_name, last_part, remove
from grete.errors import CellChanged, Fenced, HeldByOther, LogCorrupted


class DistributedLock:
    """A lock `name` (Samza's DistributedLock). Used by one thread at a time.

        lock = DistributedLock(coordination, "create-streams")
        if lock.lock(Deadline(clock, 30.0)):
            ...             # under lock.held.epoch, until lock.held.valid_until_s
            lock.unlock()

    As every lock with a TTL it does not exclude by itself a process that was paused: a resource that must not be
    written by two checks the epoch, which grows with every holder.
    """

    def __init__(self, coordination: Coordination, name: str) -> None:
        self._coordination = coordination
        self._scope = f"lock/{name}"
        self.held: Leadership | None = None
        """Proof of holding it, with the fencing token and how long it may be acted on; None without it."""

    def lock(self, deadline: Deadline) -> bool:
        """Take the lock; False when another one holds it to the deadline. Held already, it is renewed.

        A holder that died is succeeded once it is known to be dead, which may take a TTL.
        """
        if self.renew():
            return True
        while True:
            try:
                self.held = self._coordination.campaign(self._scope)
            except HeldByOther:
                if not deadline.pause():
                    return False
            else:
                return True

    def renew(self) -> bool:
        """Extend; False when it is not held (any more). To be called every third of the TTL."""
        if self.held is not None:
            self.held = self._coordination.renew(self.held)
        return self.held is not None

    def unlock(self) -> None:
        """Give the lock back; nothing when it is not held (any more)."""
        held, self.held = self.held, None
        if held is not None:
            self._coordination.release(held)


class Latch:
    """A latch `name` for `size` parties (Samza's Latch). An open one stays open until it is removed."""

    def __init__(self, cells: Cells, name: str, size: int) -> None:
        self._cells = cells
        self._prefix = cell_name("latches", name)
        self._size = size

    def count_down(self, party: str | None = None) -> None:
        """Count once for `party`, however often it is called, as after a restart; without one every call counts."""
        name = f"{self._prefix}/{cell_name(party or uuid.uuid4().hex)}"
        try:
            self._cells.write(name, b"", None)
        except CellChanged:
            return  # counted already

    def count(self) -> int:
        """How many are still to count before it opens."""
        return max(0, self._size - len(self._cells.read_all(self._prefix)))

    def wait(self, deadline: Deadline) -> bool:
        """Wait until it is open; False when it was not by the deadline."""
        seen = self._cells.read_all(self._prefix)
        while len(seen) < self._size:
            if deadline.is_over:
                return False
            seen = self._cells.wait(self._prefix, seen, deadline)
        return True

    def remove(self) -> None:
        """Forget who has counted."""
        for name, cell in self._cells.read_all(self._prefix).items():
            remove(self._cells, name, cell)


class BarrierState(Enum):
    """How far a version is. Only an open one changes."""

    OPEN = "open"
    DONE = "done"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    epoch: int
    members: tuple[str, ...]
    state: str = BarrierState.OPEN.value


class Barrier:
    """The barrier `name` of a scope. Versions grow; each takes the place of the one before.

    A leader opens version N for some members; each arrives when it has let go of what it loses by N; when all are
    there the leader's version is done and everybody goes on. A version that takes too long times out, once and for
    all: done and timed out exclude each other, whoever says so first, and the next version takes its place.

        leader                                    member
        barrier.open(7, ["a", "b"], epoch)        barrier.arrive(7, "a")
        barrier.wait(7, deadline)  -> DONE        barrier.wait(7, deadline)  -> DONE
    """

    def __init__(self, cells: Cells, name: str) -> None:
        self._cells = cells
        self._name = cell_name("barriers", name)
        self._arrivals = cell_name("arrivals", name)

    def open(self, number: int, members: Collection[str], epoch: int) -> None:
        """Begin a version, under the leader's epoch. What was open before has timed out.

        Raises:
            Fenced: a leader of a higher epoch has opened one.
            ValueError: a version is there already that is not below `number`.
        """
        while True:
            cell = self._cells.read(self._name)
            known = None if cell is None else self._decode(cell)
            if known is not None and known.epoch > epoch:
                raise Fenced(self._name, epoch=epoch, seen=known.epoch)
            if known is not None and known.number >= number:
                raise ValueError(f"version {number} of {self._name} is not above version {known.number}")
            if self._set(_Version(number, epoch, tuple(sorted(members))), cell):
                break
        for name, arrival in self._cells.read_all(self._arrivals).items():
            if int(name.removeprefix(f"{self._arrivals}/").split("/")[0]) < number:
                remove(self._cells, name, arrival)

    def arrive(self, number: int, member: str) -> None:
        """Say that a member has let go of what it loses by the version; again is the same."""
        try:
            self._cells.write(f"{self._arrivals}/{number}/{cell_name(member)}", b"", None)
        except CellChanged:
            return

    def missing(self, number: int) -> set[str]:
        """The members of the version that have not arrived."""
        cell = self._cells.read(self._name)
        known = None if cell is None else self._decode(cell)
        members = set() if known is None or known.number != number else set(known.members)
        return members - {last_part(name) for name in self._cells.read_all(f"{self._arrivals}/{number}")}

    def state(self, number: int) -> BarrierState:
        """How far the version is; the last member's arrival makes it done for whoever looks first."""
        while True:
            cell = self._cells.read(self._name)
            known = None if cell is None else self._decode(cell)
            if cell is None or known is None or known.number < number:
                return BarrierState.OPEN  # its leader has not begun it yet
            if known.number > number:
                return BarrierState.TIMED_OUT
            if known.state != BarrierState.OPEN.value or self.missing(number):
                return BarrierState(known.state)
            if self._set(replace(known, state=BarrierState.DONE.value), cell):
                return BarrierState.DONE

    def time_out(self, number: int) -> BarrierState:
        """Give the version up unless it is done; returns which of both it is."""
        while (state := self.state(number)) is BarrierState.OPEN:
            cell = self._cells.read(self._name)
            known = None if cell is None else self._decode(cell)
            if known is None or known.number != number:
                return BarrierState.TIMED_OUT
            self._set(replace(known, state=BarrierState.TIMED_OUT.value), cell)
        return state

    def wait(self, number: int, deadline: Deadline) -> BarrierState:
        """Wait until the version is done or has timed out; open at the deadline, it is still open."""
        while True:
            seen = self._cells.read_all("")
            state = self.state(number)
            if state is not BarrierState.OPEN or deadline.is_over:
                return state
            self._cells.wait("", seen, deadline)

    def _set(self, version: _Version, cell: Cell | None) -> bool:
        value = orjson.dumps(asdict(version))
        try:
            self._cells.write(self._name, value, None if cell is None else cell.version)
        except CellChanged:
            return False
        return True

    def _decode(self, cell: Cell) -> _Version:
        try:
            document = orjson.loads(cell.value)
            return _Version(**{**document, "members": tuple(document["members"])})
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise LogCorrupted(f"coordination cell {self._name} holds no version; delete it") from error
