"""Leadership in memory: the reference that other back ends are compared with, and the one tests use."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from dataclasses import dataclass, field

from grete.clock import Clock
from grete.coordination.base import Coordination, Holder, Leadership
from grete.coordination.patience import Patience
from grete.errors import HeldByOther


@dataclass(slots=True)
class _Row:
    epoch: int
    holder: Holder
    renewals: int = 0
    is_over: bool = False


@dataclass(slots=True)
class MemoryLeaderships:
    """State that contenders of one process share."""

    rows: dict[str, _Row] = field(default_factory=dict)
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
            self._shared.rows[scope] = _Row(epoch, me)
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

    def _mine(self, leadership: Leadership) -> _Row | None:
        row = self._shared.rows.get(leadership.scope)
        if row is None or row.is_over or row.holder.incarnation != leadership.incarnation:
            return None
        return row

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

    def close(self) -> None:
        """See Coordination."""
