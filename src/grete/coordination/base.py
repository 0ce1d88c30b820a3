"""Leadership on the store you already have: the holder, its epoch, and how long it may act.

An epoch is a number minted by the store in the same atomic step as the ownership; over all time it only grows.
Leadership is a *permission that expires*: `valid_until_s` counts on the holder's own monotonic clock from before
the request was sent and is earlier than the moment at which the store would elect another process. No lock service
can promise mutual exclusion by itself; the promise is kept by the resources, which refuse an older epoch.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from grete.clock import Clock
from grete.coordination.cells import Cells, change
from grete.errors import HeldByOther

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.5
_FORGOTTEN, _EPOCH = "forgotten", "epoch"
"""The scope and the cell that hold the highest epoch of all scopes that were forgotten."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The leading process, for people: never used for decisions, since names and process ids are reused."""

    host: str
    pid: int
    incarnation: str
    since_ms: int
    heard_ms: int | None = None
    """When it renewed last, by its own clock; None where the store shows whether it lives."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def described(self) -> str:
        """For the one who is refused: who, where and since when."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{self} since {since}"


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof of leading `scope` under `epoch`. Stop new irreversible actions at `valid_until_s`."""

    scope: str
    epoch: int
    incarnation: str
    valid_until_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """A look at who leads: the epoch as `leading_epoch` has it, and whether that leader `is_silent`."""

    epoch: int | None
    is_silent: bool


def campaign_patiently(
    coordination: Coordination,
    scope: str,
    clock: Clock,
    *,
    take_over: bool = False,
    epoch_floor: int = 0,
    patiently: bool = True,
) -> Leadership:
    """As `Coordination.campaign`, but `patiently` wait as long as it is unknown whether the holder lives.

    Where a dead holder does not show by itself (Kafka), that is a TTL at most: a living one renews within a third of
    it. Else a job that died could not be started again: each start would look for the first time, and give up.

    Raises:
        HeldByOther: another process leads, and lives.
    """
    never, logged = threading.Event(), False
    while True:
        try:
            return coordination.campaign(scope, take_over=take_over, epoch_floor=epoch_floor)
        except HeldByOther as error:
            if not (patiently and error.may_be_dead):
                raise
            if not logged:
                _log.info("%s: waiting until it is known whether that one lives", error)
            logged = True
        clock.wait(never, _LOOK_AGAIN_S)


def forget_scope(coordination: Coordination, leadership: Leadership) -> None:
    """Remove what the service keeps of a scope that nobody will lead, with all its cells.

    No epoch of it comes again, though its counter is gone: `forgotten_epoch` is one for all scopes.

    Raises:
        LeadershipLost: another process leads it by now; nothing was removed.
        GreteError: the service does not answer, or does not let us.
    """

    def raised(value: bytes | None) -> bytes | None:
        return b"%d" % leadership.epoch if value is None or int(value) < leadership.epoch else None

    change(
        coordination.cells(_FORGOTTEN), _EPOCH, raised
    )  # first, so that it is there when the counter is not
    coordination.forget(leadership)


def forgotten_epoch(coordination: Coordination) -> int:
    """The highest epoch of all scopes that were forgotten: the floor where the caller's log knows nothing."""
    cell = coordination.cells(_FORGOTTEN).read(_EPOCH)
    return 0 if cell is None else int(cell.value)


class Coordination(ABC):
    """Leader election for named scopes, and the cells beside it: one client of its service."""

    LOOKS_IN_TTL: ClassVar[float] = 30
    """How often a process that stands by looks in a TTL: the price of requests against how soon it leads."""

    @abstractmethod
    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """Become leader now, without waiting.

        A holder that is known to be dead, or has not renewed for its whole TTL as observed here, is succeeded at
        once. `take_over` succeeds a living one too: its next write is fenced. The new epoch is above `epoch_floor`,
        the highest one that the caller's own log has seen: losing the store never lowers it.

        A floor is as old as its reading. Where the leadership is deleted by hand after another process was elected,
        a campaign that had begun earlier may win the deleted epoch once more. So an epoch gives no right to write
        until it was claimed in the log that it protects, which no two processes can: see `grete.coordination.lead`.

        Raises:
            HeldByOther: another process leads; names the holder, and returns whether it may be dead.
        """

    @abstractmethod
    def renew(self, leadership: Leadership) -> Leadership | None:
        """Extend; None when the leadership is lost, which ends this incarnation. Call every TTL/3.

        Without an answer the leadership comes back as it was, or the store's error is raised. That may be tried again
        beyond `valid_until_s`, as long as nobody else can have been elected: nothing is done under it meanwhile.
        """

    @abstractmethod
    def release(self, leadership: Leadership) -> None:
        """Give up, after all work has stopped. An optimisation only: nothing may depend on it happening."""

    @abstractmethod
    def forget(self, leadership: Leadership) -> None:
        """Remove the leadership and the cells of its scope; the service is left as if neither had ever been there.

        Its epochs are forgotten as well: `forget_scope` is what callers want. Cells that were opened before are not
        used any more. A process that is elected in the middle of it may lose its leadership and cells.

        Raises:
            LeadershipLost: another process leads by now; nothing was removed.
        """

    @abstractmethod
    def holder(self, scope: str) -> Holder | None:
        """The holder according to the store; None when there is none or it is known to be dead."""

    @abstractmethod
    def leading_epoch(self, scope: str) -> int | None:
        """The epoch under which `holder` leads, None without a holder: requests are addressed to it.

        It is known from the election on, while what the leader writes under it comes later.
        """

    @abstractmethod
    def is_silent(self, scope: str) -> bool:
        """Whether the holder has not renewed for a TTL since this object first looked: call repeatedly.

        Such a holder is dead or hangs, and the next `campaign` succeeds it.
        """

    def look(self, scope: str) -> Look:
        """`leading_epoch` and `is_silent` at once, for those that look repeatedly: one request if possible."""
        epoch = self.leading_epoch(scope)
        return Look(epoch, epoch is not None and self.is_silent(scope))

    @abstractmethod
    def cells(self, scope: str) -> Cells:
        """The cells of `scope`: those of two scopes do not meet. Closed with this object at the latest."""

    @abstractmethod
    def close(self) -> None:
        """Release every resource; leaderships that were not released expire."""
