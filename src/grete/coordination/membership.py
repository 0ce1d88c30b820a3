"""Members of a group, each with metadata and a TTL, over the cells of any service.

A member has a cell of its own, whose version changes with each renewal. An observer takes it for gone when it has
seen the same version for a whole TTL on its own clock (`grete.coordination.patience`); clocks are never compared. So
a member that hangs is gone for all that look, and knows it itself: it may act until `valid_until_s`, which is before
any of them gives it up. A scope may have several groups; members of two groups do not meet.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import msgspec
import orjson

from grete.clock import Clock
from grete.coordination.cells import Cell, Cells, cell_name, last_part, remove
from grete.coordination.patience import Patience
from grete.errors import CellChanged, IdTaken

_log = logging.getLogger(__name__)
_RENEWALS_IN_TTL = 3
_STANDBY_LEASES = 2


@dataclass(frozen=True, slots=True)
class Member:
    """A member as others see it. Times and the place are for people, `incarnation` tells it from a later one."""

    id: str
    incarnation: str
    host: str
    pid: int
    since_ms: int
    metadata: Mapping[str, str]
    heard_ms: int = 0
    """When it joined or renewed last, by its own clock."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Admission:
    """Proof of being a member. Stop new irreversible actions at `valid_until_s`, on the own monotonic clock."""

    member: Member
    version: str
    valid_until_s: float


class Membership:
    """The members of the scope of `cells`. One object an observer: it remembers what it has seen, and when."""

    def __init__(self, cells: Cells, clock: Clock, *, ttl_s: float, group: str = "members") -> None:
        self._cells = cells
        self._clock = clock
        self._group = cell_name(group)
        self.ttl_s = ttl_s
        self._patience = Patience(clock, ttl_s=ttl_s)

    def _cell(self, id: str) -> str:
        return cell_name(self._group, id)

    def join(
        self, id: str, metadata: Mapping[str, str] | None = None, *, incarnation: str | None = None
    ) -> Admission:
        """Become the member `id`. To be renewed every TTL/3.

        A member of this id that has been seen to stand still for a TTL is succeeded; call again until then. Who calls
        again after no answer gives the same `incarnation` each time, by which what the first call did is recognised.

        Raises:
            IdTaken: there is one, and it may be alive (Samza's check of duplicate processor ids).
        """
        asked_s = self._clock.monotonic_s()
        name = self._cell(id)
        known = self._cells.read(name)
        other = None if known is None else _decode(name, known)
        incarnation = incarnation or uuid.uuid4().hex
        is_other = other is not None and other.incarnation != incarnation
        if known is not None and is_other and not self._is_gone(name, known, asked_s):
            raise IdTaken(id, str(other))
        host, now_ms = socket.gethostname(), self._clock.wall_ms()
        me = Member(id, incarnation, host, os.getpid(), now_ms, dict(metadata or {}), now_ms)
        try:
            cell = self._cells.write(name, _encode(me), None if known is None else known.version)
        except CellChanged as error:
            raise IdTaken(id, "another process that joined at the same time") from error
        return Admission(me, cell.version, self._patience.until_s(asked_s))

    def renew(self, admission: Admission, metadata: Mapping[str, str] | None = None) -> Admission | None:
        """Extend, with other metadata if given; None once it was succeeded or removed, which ends this member.

        After an answer that did not come, the version is another one: a cell that still holds this incarnation is
        renewed all the same.
        """
        asked_s = self._clock.monotonic_s()
        me = replace(admission.member, heard_ms=self._clock.wall_ms())
        if metadata is not None:
            me = replace(me, metadata=dict(metadata))
        name = self._cell(me.id)
        try:
            cell = self._cells.write(name, _encode(me), admission.version)
        except CellChanged:
            found = self._cells.read(name)
            if found is None or not _is_of(name, found, me):
                return None
            try:
                cell = self._cells.write(name, _encode(me), found.version)
            except CellChanged:
                return None
        return Admission(me, cell.version, self._patience.until_s(asked_s))

    def leave(self, admission: Admission) -> None:
        """Stop being a member; nothing where another process is it by now."""
        name = self._cell(admission.member.id)
        found = self._cells.read(name)
        if found is not None and _is_of(name, found, admission.member):
            remove(self._cells, name, found)

    def members(self) -> dict[str, Member]:
        """The living members by id, as this observer knows: one that it sees for the first time is alive."""
        asked_s = self._clock.monotonic_s()
        cells = self._cells.read_all(self._group)
        return {
            last_part(name): member
            for name, cell in sorted(cells.items())
            if not self._is_gone(name, cell, asked_s) and (member := _decode(name, cell)) is not None
        }

    def heard_of(self) -> list[Member]:
        """The members that renewed within a TTL by their clocks and ours, the first to join first: for people.

        What an observer that looks once can know; `members` is for decisions.
        """
        since_ms = self._clock.wall_ms() - self.ttl_s * 1000
        found = [_decode(name, cell) for name, cell in self._cells.read_all(self._group).items()]
        heard = [one for one in found if one is not None and one.heard_ms >= since_ms]
        return sorted(heard, key=lambda one: one.since_ms)

    def remove_gone(self) -> list[str]:
        """Remove the members that this observer knows to be gone; returns their ids.

        A leader does that, since a process that looks for the first time takes them for alive.
        """
        asked_s = self._clock.monotonic_s()
        cells = self._cells.read_all(self._group)
        gone = [(name, cell) for name, cell in cells.items() if self._is_gone(name, cell, asked_s)]
        return [last_part(name) for name, cell in gone if remove(self._cells, name, cell)]

    def _is_gone(self, name: str, cell: Cell, asked_s: float) -> bool:
        return self._patience.is_over(name, cell.version, asked_s=asked_s)


def standbys(cells: Cells, clock: Clock, *, lease_s: float) -> Membership:
    """The coordinators that stand by for the scope of `cells`, whose leader has a lease of `lease_s`.

    For people, who decide whether the leader may step down, so a TTL may be longer than a lease.
    """
    return Membership(cells, clock, ttl_s=_STANDBY_LEASES * lease_s, group="standbys")


class Attendance:
    """A member that calls of `keep` keep: joined, renewed three times in a TTL, joined again when it was removed.

    For groups in which ids mean nothing: each time it joins it has another one. Once in a TTL it removes the members
    that it knows to be gone.
    """

    def __init__(self, members: Membership, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._admission: Admission | None = None
        self._due_s = self._sweep_s = clock.monotonic_s()

    def keep(self) -> None:
        """Join or renew, if that is due.

        Raises:
            GreteError: the service does not answer, or does not let us.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._members.ttl_s / _RENEWALS_IN_TTL
        if self._admission is not None:
            self._admission = self._members.renew(self._admission)
        if self._admission is None:
            self._admission = self._members.join(uuid.uuid4().hex)
        if now_s >= self._sweep_s:
            self._sweep_s = now_s + self._members.ttl_s
            self._members.remove_gone()

    def end(self) -> None:
        """Leave."""
        if self._admission is not None:
            self._members.leave(self._admission)


def _encode(member: Member) -> bytes:
    return orjson.dumps(asdict(member))


def _is_of(name: str, cell: Cell, member: Member) -> bool:
    found = _decode(name, cell)
    return found is not None and found.incarnation == member.incarnation


def _decode(name: str, cell: Cell) -> Member | None:
    """None when another program wrote it: that is no member, and the next one of this id writes over it."""
    try:
        return msgspec.json.decode(cell.value, type=Member)
    except msgspec.DecodeError as error:
        _log.warning("coordination cell %s holds no member: %s", name, error)
        return None
