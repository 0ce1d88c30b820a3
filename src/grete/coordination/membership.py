"""Members of a group, each with metadata and a TTL, over the cells of any service.

A member has a cell of its own, whose version changes with each renewal. An observer takes it for gone when it has
seen the same version for a whole TTL on its own clock (`grete.coordination.patience`); clocks are never compared. So
a member that hangs is gone for all that look, and knows it itself: it may act until `valid_until_s`, which is before
any of them gives it up.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import orjson

from grete.clock import Clock
from grete.coordination.cells import Cell, Cells, cell_name, last_part, remove
from grete.coordination.patience import Patience
from grete.errors import CellChanged, IdTaken, LogCorrupted

_PREFIX = "members"


@dataclass(frozen=True, slots=True)
class Member:
    """A member as others see it. `since_ms` and the place are for people, `incarnation` tells it from a later one."""

    id: str
    incarnation: str
    host: str
    pid: int
    since_ms: int
    metadata: Mapping[str, str]

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

    def __init__(self, cells: Cells, clock: Clock, *, ttl_s: float) -> None:
        self._cells = cells
        self._clock = clock
        self._patience = Patience(clock, ttl_s=ttl_s)

    def join(self, id: str, metadata: Mapping[str, str] | None = None) -> Admission:
        """Become the member `id`. To be renewed every TTL/3.

        A member of this id that has been seen to stand still for a TTL is succeeded; call again until then.

        Raises:
            IdTaken: there is one, and it may be alive (Samza's check of duplicate processor ids).
        """
        asked_s = self._clock.monotonic_s()
        name = cell_name(_PREFIX, id)
        known = self._cells.read(name)
        if known is not None and not self._is_gone(name, known):
            raise IdTaken(id, str(_decode(name, known)))
        me = Member(
            id,
            uuid.uuid4().hex,
            socket.gethostname(),
            os.getpid(),
            self._clock.wall_ms(),
            dict(metadata or {}),
        )
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
        me = admission.member if metadata is None else replace(admission.member, metadata=dict(metadata))
        name = cell_name(_PREFIX, me.id)
        try:
            cell = self._cells.write(name, _encode(me), admission.version)
        except CellChanged:
            found = self._cells.read(name)
            if found is None or _decode(name, found).incarnation != me.incarnation:
                return None
            try:
                cell = self._cells.write(name, _encode(me), found.version)
            except CellChanged:
                return None
        return Admission(me, cell.version, self._patience.until_s(asked_s))

    def leave(self, admission: Admission) -> None:
        """Stop being a member; nothing where another process is it by now."""
        name = cell_name(_PREFIX, admission.member.id)
        found = self._cells.read(name)
        if found is not None and _decode(name, found).incarnation == admission.member.incarnation:
            remove(self._cells, name, found)

    def members(self) -> dict[str, Member]:
        """The living members by id, as this observer knows: one that it sees for the first time is alive."""
        cells = self._cells.read_all(_PREFIX)
        return {
            last_part(name): _decode(name, cell)
            for name, cell in sorted(cells.items())
            if not self._is_gone(name, cell)
        }

    def remove_gone(self) -> list[str]:
        """Remove the members that this observer knows to be gone; returns their ids.

        A leader does that, since a process that looks for the first time takes them for alive.
        """
        gone = [
            (name, cell) for name, cell in self._cells.read_all(_PREFIX).items() if self._is_gone(name, cell)
        ]
        return [last_part(name) for name, cell in gone if remove(self._cells, name, cell)]

    def _is_gone(self, name: str, cell: Cell) -> bool:
        return self._patience.is_over(name, cell.version)


def _encode(member: Member) -> bytes:
    return orjson.dumps(asdict(member))


def _decode(name: str, cell: Cell) -> Member:
    try:
        return Member(**orjson.loads(cell.value))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise LogCorrupted(f"coordination cell {name} holds no member; delete it") from error
