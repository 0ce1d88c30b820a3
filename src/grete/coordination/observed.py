"""One election for every service that keeps a value and changes it by comparing and setting (`TermRegister`).

The value is a term: epoch, holder, and a count of renewals. A holder that hangs or died is known by its count, which
stands still for a whole TTL on the contender's own clock; clocks and times of the service and of others count for
nothing. The value outlives terms, so epochs grow; where it was lost, `epoch_floor` takes its place.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from grete.clock import Clock
from grete.coordination.base import Coordination, Holder, Leadership, Look
from grete.coordination.cells import Cells
from grete.coordination.patience import Patience, renewal_s
from grete.errors import GreteError, HeldByOther, LeadershipLost, LogUnreachable

_CALLS_IN_TTL = 6
_log = logging.getLogger("grete.coordinator")


@dataclass(frozen=True, slots=True)
class Term:
    """What a register has of a scope; `holder` is None once the leadership was released."""

    epoch: int
    holder: Holder | None
    renewals: int = 0

    def is_held_by(self, leadership: Leadership) -> bool:
        """Whether it is this leadership's."""
        return self.holder is not None and self.holder.incarnation == leadership.incarnation


Decide = Callable[[Term | None], Term | None]


class TermRegister(ABC):
    """A term for each scope, in a service that lets one of those write who have read the same."""

    UNANSWERED: ClassVar[type[GreteError]]
    """What is raised while the service does not answer, so that a renewal is tried again."""
    IS_ALWAYS_SETTLED: ClassVar[bool] = True
    """Whether each read has all that was written before it."""

    @abstractmethod
    def read(self, scope: str, *, is_settled: bool = False) -> Term | None:
        """The term; None while there was none. With `is_settled` all that was written before the call is in it."""

    @abstractmethod
    def change(
        self, scope: str, decide: Decide, timeout_s: float, mine: Leadership | None = None
    ) -> Term | None:
        """Write what `decide` makes of the term, again as often as another process was faster; None leaves it.

        Returns the term as it is in the end. A write without an answer is followed by reading, and `decide` has to
        recognise what it has written. Where `mine` is given, what was last written for it may be tried first.

        Raises:
            LeadershipLost: the value of `mine` was lost with all that it held.
            GreteError: what `decide` raises; `UNANSWERED` when nothing was decided in time.
        """

    @abstractmethod
    def remove(self, leadership: Leadership) -> None:
        """Remove the value of the leadership's scope, and its cells. Raises LeadershipLost where another leads."""

    @abstractmethod
    def cells(self, scope: str) -> Cells:
        """See Coordination."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; values stay."""


class ObservedElection(Coordination):
    """Leader election over a register."""

    def __init__(
        self, register: TermRegister, clock: Clock, *, ttl_s: float, campaign_s: float | None = None
    ) -> None:
        """A release takes a sixth of a TTL at most, a renewal `renewal_s`, a campaign a TTL or `campaign_s`."""
        self._register = register
        self._clock = clock
        self._release_s, self._renewal_s = ttl_s / _CALLS_IN_TTL, renewal_s(ttl_s)
        self._campaign_s = ttl_s if campaign_s is None else campaign_s
        self._patience = Patience(clock, ttl_s=ttl_s)

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination. What is won late is renewed before anything is done with it."""
        asked_s = self._clock.monotonic_s()
        now_ms = self._clock.wall_ms()
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, now_ms, heard_ms=now_ms)

        def decide(term: Term | None) -> Term | None:
            if term is not None and term.holder is not None:
                if term.holder.incarnation == me.incarnation:  # our own attempt, whose answer did not come
                    return None
                if not take_over and not self._patience.is_over(
                    scope, term.holder.incarnation, term.renewals
                ):
                    may_be_dead = not self._patience.has_moved(scope)
                    raise HeldByOther(scope, term.holder.described(), may_be_dead=may_be_dead)
            return Term(1 + max(0 if term is None else term.epoch, epoch_floor), me)

        won = self._register.change(scope, decide, self._campaign_s)
        assert won is not None, "an election leaves a term"
        return Leadership(scope, won.epoch, me.incarnation, self._patience.until_s(asked_s))

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination. While there is no answer, the leadership comes back as it is, for a TTL at most."""
        asked_s = self._clock.monotonic_s()

        def decide(term: Term | None) -> Term | None:
            if term is None or term.holder is None or not term.is_held_by(leadership):
                return None
            heard = replace(term.holder, heard_ms=self._clock.wall_ms())
            return replace(term, holder=heard, renewals=term.renewals + 1)

        try:
            term = self._register.change(leadership.scope, decide, self._renewal_s, leadership)
        except LeadershipLost as error:
            _log.warning("the leadership of %s is lost: %s", leadership.scope, error)
            return None
        except self._register.UNANSWERED as error:
            _log.info("the leadership of %s was not renewed: %s", leadership.scope, error)
            return self._patience.unanswered(leadership)
        if term is None or not term.is_held_by(leadership):
            return None
        return replace(leadership, valid_until_s=self._patience.until_s(asked_s))

    def release(self, leadership: Leadership) -> None:
        """See Coordination. Without an answer the leadership expires by itself, and the error is raised."""

        def decide(term: Term | None) -> Term | None:
            is_ours = term is not None and term.is_held_by(leadership)
            return replace(term, holder=None) if term is not None and is_ours else None

        self._register.change(leadership.scope, decide, self._release_s, leadership)

    def forget(self, leadership: Leadership) -> None:
        """See Coordination."""
        self._register.remove(leadership)

    def holder(self, scope: str) -> Holder | None:
        """See Coordination. A dead holder is returned until another one leads: it looks like a slow one.

        Its last renewal is the only sign of life. A holder elected before the call is found, unless a process that
        hangs keeps the outcome of a change open: then the one before.
        """
        try:
            term = self._register.read(scope, is_settled=True)
        except LogUnreachable:
            term = self._register.read(scope)
        return None if term is None else term.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination; of a dead holder too, as in `holder`. One elected before the call is found."""
        term = self._register.read(scope, is_settled=True)
        return None if term is None or term.holder is None else term.epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination. May be late when a process that hangs keeps the outcome of a change open."""
        return self._seen(scope).is_silent

    def look(self, scope: str) -> Look:
        """See Coordination."""
        return self._seen(scope) if self._register.IS_ALWAYS_SETTLED else super().look(scope)

    def _seen(self, scope: str) -> Look:
        term = self._register.read(scope)
        if term is None or term.holder is None:
            return Look(None, False)
        return Look(term.epoch, self._patience.is_over(scope, term.holder.incarnation, term.renewals))

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return self._register.cells(scope)

    def close(self) -> None:
        """See Coordination."""
        self._register.close()
