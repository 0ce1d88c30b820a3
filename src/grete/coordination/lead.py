"""Leading a scope under an epoch that its log has never had, whatever became of the service's memory."""

from __future__ import annotations

from grete.clock import Clock
from grete.coordination.base import Coordination, Leadership, campaign_patiently, forgotten_epoch
from grete.errors import Fenced
from grete.keyed_log.base import Fence, KeyedLog


def lead(
    coordination: Coordination,
    log: KeyedLog,
    scope: str,
    clock: Clock,
    *,
    epoch_floor: int,
    take_over: bool = False,
    patiently: bool = True,
) -> Leadership:
    """Lead under an epoch that is ours alone: won from the service, then claimed in the scope's log.

    The service alone cannot promise that. Where its leadership is deleted by hand, it mints from the floor that a
    contender read before, and so may give one epoch to two processes. The log lets one of them have it; the other
    gives up what it has won, and campaigns above. `patiently` waits until it is known whether a holder lives.

    Raises:
        HeldByOther: another process leads.
        Fenced: the service mints epochs that are not above its floor.
        GreteError: the service or the log does not answer. What was won may be ours until it expires.
    """
    floor, is_first, is_new = epoch_floor, True, not epoch_floor
    while True:
        floor = max(floor, forgotten_epoch(coordination) if is_new else 0)
        leadership = campaign_patiently(
            coordination,
            scope,
            clock,
            take_over=take_over and is_first,
            epoch_floor=floor,
            patiently=patiently,
        )
        is_first = False
        if is_new and forgotten_epoch(coordination) >= leadership.epoch:
            coordination.release(leadership)  # the scope was forgotten meanwhile
            continue
        try:
            log.claim(Fence(scope, leadership.epoch))
        except Fenced as error:
            coordination.release(leadership)
            if error.seen <= floor:
                raise  # a service that mints below the floor would do so for ever
            floor = error.seen
        else:
            return leadership
