"""Leadership on Kafka, for jobs that have no other store.

Each scope has a topic with one value: epoch, holder, a counter of renewals. It is changed by comparing and setting
(`grete.keyed_log.kafka_register`). A holder that hangs or died is known by its counter, which stands still for a
whole TTL on the contender's own clock; brokers' clocks and timestamps count for nothing. Contenders who only look do
not disturb the holder. The value outlives terms, so epochs grow; losing the topic is made good by `epoch_floor`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import orjson

from grete.clock import Clock, SystemClock
from grete.coordination.base import Coordination, Holder, Leadership
from grete.coordination.cells import Cells
from grete.coordination.factory import CoordinationContext
from grete.coordination.kafka_cells import KafkaCells
from grete.coordination.patience import Patience, renewal_s
from grete.errors import HeldByOther, LeadershipLost, LogCorrupted, LogError, LogUnreachable
from grete.kafka.settings import KafkaLogSettings, coordinator_log_settings
from grete.keyed_log.kafka_register import KafkaRegister

T = TypeVar("T")
_LEGAL = re.compile(r"[^A-Za-z0-9._-]")
_CALLS_IN_TTL = 6
TOPIC_PREFIX = "__grete_"
_LEADERSHIP, _CELLS = "leadership_", "cells_"
_log = logging.getLogger("grete.coordinator")


@dataclass(frozen=True, slots=True)
class _KafkaRow:
    """`holder` is None once the leadership was released."""

    epoch: int
    holder: Holder | None
    renewals: int

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    def is_held_by(self, leadership: Leadership) -> bool:
        return self.holder is not None and self.holder.incarnation == leadership.incarnation


def topic_name(scope: str, prefix: str) -> str:
    """The topic of a scope: readable, legal, and never that of another scope."""
    plain = _LEGAL.sub("-", scope)[:180]
    suffix = "" if plain == scope else f"-{hashlib.sha256(scope.encode()).hexdigest()[:8]}"
    return f"{prefix}{plain}{suffix}"


def open_coordination(context: CoordinationContext) -> KafkaCoordination:
    """On the brokers of the coordinator system."""
    settings = coordinator_log_settings(context.settings.raw, context.system)
    return KafkaCoordination(settings, context.clock, ttl_s=context.ttl_s)


class KafkaCoordination(Coordination):
    """Leader election in topics, one a scope."""

    def __init__(
        self,
        settings: KafkaLogSettings,
        clock: Clock,
        *,
        ttl_s: float = 15.0,
        topic_prefix: str = TOPIC_PREFIX,
    ) -> None:
        """A release takes a sixth of a TTL at most, a renewal `renewal_s`, a campaign a TTL or the settings' timeout.

        A campaign may be the first to write on brokers that have just started, and those take seconds. What it wins
        so late is renewed before anything is done with it.
        """
        self._timeout_s = ttl_s / _CALLS_IN_TTL
        self._renewal_s = renewal_s(ttl_s)
        self._campaign_s = max(ttl_s, settings.timeout_s)
        self._settings = replace(
            settings, timeout_s=self._timeout_s, transaction_timeout_s=max(self._renewal_s, 1.0)
        )
        self._clock = clock
        self._prefix = topic_prefix
        self._patience = Patience(clock, ttl_s=ttl_s)
        self._lock = threading.Lock()
        self._registers: dict[str, KafkaRegister] = {}
        self._cells: dict[str, KafkaCells] = {}

    def _register(self, scope: str) -> KafkaRegister:
        known = self._registers.get(scope)  # without the lock, which another thread may hold to make a topic
        if known is not None:
            return known
        with self._lock:
            if scope not in self._registers:
                self._registers[scope] = KafkaRegister(
                    topic_name(scope, self._prefix + _LEADERSHIP), self._settings, SystemClock()
                )
            return self._registers[scope]

    def _with_register(self, scope: str, use: Callable[[KafkaRegister], T]) -> T:
        """Use the register of a scope; a topic that was deleted and recreated since we read it is read anew.

        Its epochs begin again, which callers make good by their `epoch_floor`. Else a process that stands by would
        end with the topic, and none was there to go on.
        """
        try:
            return use(self._register(scope))
        except LogCorrupted:
            with self._lock:
                lost = self._registers.pop(scope, None)
            if lost is not None:
                lost.close()
            return use(self._register(scope))

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination.

        Raises:
            LogError: the brokers did not answer in time.
        """
        asked_s = self._clock.monotonic_s()
        now_ms = self._clock.wall_ms()
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, now_ms, heard_ms=now_ms)
        won: list[int] = []

        def decide(value: bytes | None) -> bytes | None:
            row = _decode(scope, value)
            if row is not None and row.holder is not None:
                if row.holder.incarnation == me.incarnation:  # our own attempt, whose answer did not come
                    won[:] = [row.epoch]
                    return None
                if not take_over and not self._patience.is_over(scope, row.epoch, row.renewals):
                    may_be_dead = not self._patience.has_moved(scope)
                    raise HeldByOther(scope, row.holder.described(), may_be_dead=may_be_dead)
            won[:] = [1 + max(0 if row is None else row.epoch, epoch_floor)]
            return _KafkaRow(won[0], me, 0).encode()

        self._with_register(scope, lambda register: register.change(decide, self._campaign_s))
        return Leadership(scope, won[0], me.incarnation, self._patience.until_s(asked_s))

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination. While brokers do not answer, the leadership comes back as it is, for a TTL at most."""
        asked_s = self._clock.monotonic_s()
        is_ours: list[bool] = [False]

        def decide(value: bytes | None) -> bytes | None:
            row = _decode(leadership.scope, value)
            is_ours[0] = row is not None and row.is_held_by(leadership)
            if row is None or row.holder is None or not is_ours[0]:
                return None
            heard = replace(row.holder, heard_ms=self._clock.wall_ms())
            return replace(row, holder=heard, renewals=row.renewals + 1).encode()

        try:
            self._register(leadership.scope).change(decide, self._renewal_s)
        except LogCorrupted as error:
            _log.warning("the leadership of %s is lost: %s", leadership.scope, error)
            return None
        except LogError as error:
            _log.info("the leadership of %s was not renewed: %s", leadership.scope, error)
            return self._patience.unanswered(leadership)
        return replace(leadership, valid_until_s=self._patience.until_s(asked_s)) if is_ours[0] else None

    def release(self, leadership: Leadership) -> None:
        """See Coordination.

        Raises:
            LogError: the brokers did not answer in time; the leadership expires by itself.
        """

        def decide(value: bytes | None) -> bytes | None:
            row = _decode(leadership.scope, value)
            is_ours = row is not None and row.is_held_by(leadership)
            return replace(row, holder=None).encode() if row is not None and is_ours else None

        self._register(leadership.scope).change(decide, self._timeout_s)

    def forget(self, leadership: Leadership) -> None:
        """See Coordination. Both topics of the scope go.

        Raises:
            LogError: the brokers did not answer in time, or do not let us delete topics.
        """
        scope = leadership.scope
        row = _decode(scope, self._register(scope).read(is_settled=True))
        if row is None or not row.is_held_by(leadership):
            raise LeadershipLost(f"{scope} is led by another process: it is not forgotten")
        self._register(scope).delete()
        with self._lock:
            self._registers.pop(scope).close()
        self.cells(scope).clear()
        with self._lock:
            self._cells.pop(scope).close()

    def holder(self, scope: str) -> Holder | None:
        """See Coordination. A dead holder is returned until another one leads: it looks like a slow one.

        Its last renewal is the only sign of life. A holder elected before the call is found, unless a process that
        hangs keeps the outcome of a change open: then the one before.
        """

        def read(register: KafkaRegister) -> bytes | None:
            try:
                return register.read(is_settled=True)
            except LogUnreachable:
                return register.read()

        row = _decode(scope, self._with_register(scope, read))
        return None if row is None else row.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination; of a dead holder too, as in `holder`. One elected before the call is found.

        Raises:
            LogError: the brokers did not answer in time, or a process that hangs keeps the outcome of a change open.
        """
        value = self._with_register(scope, lambda register: register.read(is_settled=True))
        row = _decode(scope, value)
        return None if row is None or row.holder is None else row.epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination. May be late when a process that hangs keeps the outcome of a change open."""
        row = _decode(scope, self._with_register(scope, KafkaRegister.read))
        if row is None or row.holder is None:
            return False
        return self._patience.is_over(scope, row.epoch, row.renewals)

    def cells(self, scope: str) -> Cells:
        """See Coordination. In a topic of the scope's own."""
        with self._lock:
            if scope not in self._cells:
                name = topic_name(scope, self._prefix + _CELLS)
                self._cells[scope] = KafkaCells(name, self._settings, timeout_s=self._campaign_s)
            return self._cells[scope]

    def close(self) -> None:
        """See Coordination."""
        for register in self._registers.values():
            register.close()
        for cells in self._cells.values():
            cells.close()
        self._registers.clear()
        self._cells.clear()


def _decode(scope: str, value: bytes | None) -> _KafkaRow | None:
    if value is None:
        return None
    try:
        document = orjson.loads(value)
        holder = document["holder"]
        return _KafkaRow(
            int(document["epoch"]), None if holder is None else Holder(**holder), int(document["renewals"])
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise LogCorrupted(
            f"the topic of scope {scope!r} holds no leadership; delete it to elect again"
        ) from error
