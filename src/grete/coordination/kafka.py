"""Leadership on Kafka, for jobs that have no other store.

Each scope has a topic with one value, its term (`grete.coordination.observed`), which is changed by comparing and
setting (`grete.keyed_log.kafka_register`). Contenders who only look do not disturb the holder.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TypeVar

import orjson

from grete.clock import Clock, SystemClock
from grete.coordination.base import Holder, Leadership
from grete.coordination.factory import CoordinationContext
from grete.coordination.kafka_cells import KafkaCells
from grete.coordination.observed import Decide, ObservedElection, Term, TermRegister
from grete.coordination.patience import renewal_s
from grete.errors import LeadershipLost, LogCorrupted, LogError
from grete.kafka.settings import KafkaLogSettings, coordinator_log_settings
from grete.keyed_log.kafka_register import KafkaRegister

T = TypeVar("T")
_LEGAL = re.compile(r"[^A-Za-z0-9._-]")
TOPIC_PREFIX = "__grete_"
_LEADERSHIP, _CELLS = "leadership_", "cells_"


def topic_name(scope: str, prefix: str) -> str:
    """The topic of a scope: readable, legal, and never that of another scope."""
    plain = _LEGAL.sub("-", scope)[:180]
    suffix = "" if plain == scope else f"-{hashlib.sha256(scope.encode()).hexdigest()[:8]}"
    return f"{prefix}{plain}{suffix}"


def open_coordination(context: CoordinationContext) -> KafkaCoordination:
    """On the brokers of the coordinator system."""
    settings = coordinator_log_settings(context.settings, context.system)
    return KafkaCoordination(settings, context.clock, ttl_s=context.ttl_s)


class KafkaCoordination(ObservedElection):
    """Leader election in topics, one a scope."""

    def __init__(
        self,
        settings: KafkaLogSettings,
        clock: Clock,
        *,
        ttl_s: float = 15.0,
        topic_prefix: str = TOPIC_PREFIX,
    ) -> None:
        """A campaign takes a TTL or the settings' timeout, as it may be the first to write on brokers that have just
        started, and those take seconds.
        """
        campaign_s = max(ttl_s, settings.timeout_s)
        register = KafkaTerms(settings, ttl_s=ttl_s, cells_s=campaign_s, prefix=topic_prefix)
        super().__init__(register, clock, ttl_s=ttl_s, campaign_s=campaign_s)


class KafkaTerms(TermRegister):
    """The terms of scopes, each in a topic, and their cells, each scope's in another one."""

    UNANSWERED = LogError
    IS_ALWAYS_SETTLED = False

    def __init__(self, settings: KafkaLogSettings, *, ttl_s: float, cells_s: float, prefix: str) -> None:
        transaction_s = max(renewal_s(ttl_s), 1.0)
        self._settings = replace(settings, timeout_s=ttl_s / 6, transaction_timeout_s=transaction_s)
        self._cells_s = cells_s
        self._prefix = prefix
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

    def read(self, scope: str, *, is_settled: bool = False) -> Term | None:
        """See TermRegister.

        Raises:
            LogError: the brokers did not answer in time; settled, a process that hangs keeps the outcome open.
        """
        return _decode(scope, self._with_register(scope, lambda one: one.read(is_settled=is_settled)))

    def change(
        self, scope: str, decide: Decide, timeout_s: float, mine: Leadership | None = None
    ) -> Term | None:
        """See TermRegister. A topic that was made anew has lost what `mine` is, and is read anew by anyone else."""
        outcome: list[Term | None] = [None]

        def decide_bytes(value: bytes | None) -> bytes | None:
            before = _decode(scope, value)
            after = decide(before)
            outcome[0] = before if after is None else after
            return None if after is None else orjson.dumps(asdict(after))

        if mine is None:
            self._with_register(scope, lambda one: one.change(decide_bytes, timeout_s))
        else:
            try:
                self._register(scope).change(decide_bytes, timeout_s)
            except LogCorrupted as error:
                raise LeadershipLost(str(error)) from error
        return outcome[0]

    def remove(self, leadership: Leadership) -> None:
        """See TermRegister. Both topics of the scope go.

        Raises:
            LogError: the brokers did not answer in time, or do not let us delete topics.
        """
        scope = leadership.scope
        term = _decode(scope, self._register(scope).read(is_settled=True))
        if term is None or not term.is_held_by(leadership):
            raise LeadershipLost(f"{scope} is led by another process: it is not forgotten")
        self._register(scope).delete()
        with self._lock:
            self._registers.pop(scope).close()
        self.cells(scope).clear()
        with self._lock:
            self._cells.pop(scope).close()

    def cells(self, scope: str) -> KafkaCells:
        """See Coordination. In a topic of the scope's own."""
        with self._lock:
            if scope not in self._cells:
                name = topic_name(scope, self._prefix + _CELLS)
                self._cells[scope] = KafkaCells(name, self._settings, timeout_s=self._cells_s)
            return self._cells[scope]

    def close(self) -> None:
        """See TermRegister."""
        for register in self._registers.values():
            register.close()
        for cells in self._cells.values():
            cells.close()
        self._registers.clear()
        self._cells.clear()


def _decode(scope: str, value: bytes | None) -> Term | None:
    if value is None:
        return None
    try:
        document = orjson.loads(value)
        holder = document["holder"]
        return Term(
            int(document["epoch"]), None if holder is None else Holder(**holder), int(document["renewals"])
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise LogCorrupted(
            f"the topic of scope {scope!r} holds no leadership; delete it to elect again"
        ) from error
