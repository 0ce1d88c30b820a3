"""A coordinator that stands by: it waits while another one leads, and goes on for that one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from grete.assembly.submission import Submission
from grete.clock import Clock
from grete.coordination.base import Leadership
from grete.coordination.membership import Attendance, standbys
from grete.errors import GreteError, HeldByOther
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import RequestKind, read_request, read_state
from grete.model.fence import job_scope

_log = logging.getLogger("grete.coordinator")
_SHORTEST_PAUSE_S = 0.1
_SOON_S = 0.5


def lead_when_free(
    submission: Submission,
    clock: Clock,
    led: Leadership | None,
    wait: Callable[[float], bool],
    *,
    has_stepped_down: bool,
) -> Leadership | None:
    """Lead as soon as no other coordinator does; None when `wait` says that this process is to end instead.

    `led` is the leadership of an earlier incarnation of this process. One that has stepped down lets others begin,
    for as long as a lease. While the service that elects does not answer, it waits as well.

    Raises:
        GreteError: the election cannot work, whether its service answers or not.
    """
    scope, coordination = job_scope(submission.job), submission.coordination
    not_before_s = clock.monotonic_s() + (submission.ttl_s if has_stepped_down else 0)
    submission.waited_for = None if led is None else led.epoch
    members = standbys(coordination.cells(scope), clock, lease_s=submission.ttl_s)
    attendance = Attendance(members, clock)
    leading: int | None = None
    said = ""
    while True:
        _try(attendance.keep)
        try:
            look = coordination.look(scope)
            leading = look.epoch
            if leading is not None:
                submission.waited_for = leading
                not_before_s = clock.monotonic_s()
            if clock.monotonic_s() >= not_before_s and (leading is None or look.is_silent):
                if leading is not None:
                    submission.succeeded = str(coordination.holder(scope))
                leadership = submission.elected(patiently=False)
                _try(attendance.end)
                return leadership
        except GreteError as error:
            if not (error.may_pass or isinstance(error, HeldByOther)):
                raise
            if str(error) != said:
                said = str(error)
                _log.info("standing by for job %s: %s", submission.job.shown, said)
        if _is_to_end(submission, leading, wait):
            _try(attendance.end)
            return None


def _is_to_end(submission: Submission, leading: int | None, wait: Callable[[float], bool]) -> bool:
    """Wait until it is time to look again. Soon, where the job's stream says that the leader is leaving."""
    pause_s = max(submission.ttl_s / submission.coordination.LOOKS_IN_TTL, _SHORTEST_PAUSE_S)
    while pause_s > _SOON_S:
        if wait(_SOON_S):
            return True
        pause_s -= _SOON_S
        if leading is not None and _is_leaving(submission.stream, leading):
            return False
    return wait(pause_s)


def _is_leaving(stream: CoordinatorStream, leading: int) -> bool:
    try:
        asked, state = read_request(stream, RequestKind.STEP_DOWN), read_state(stream)
    except GreteError as error:
        _log.info("whether the leader of epoch %d is leaving is not known: %s", leading, error)
        return False
    if asked is not None and asked.epoch == leading:
        return True
    return state is not None and state.epoch == leading and state.is_terminal


def _try(step: Callable[[], None]) -> None:
    """Being a member is for people: one that cannot join or leave is not kept from leading."""
    try:
        step()
    except GreteError as error:
        _log.info("the members that stand by are not as they should be: %s", error)
