"""A coordinator that stands by: it waits while another one leads, and goes on for that one."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable

from grete.assembly.submission import Submission
from grete.clock import Clock
from grete.coordination.base import Holder, Leadership
from grete.coordination.standbys import StandbyNotice
from grete.errors import GreteError, HeldByOther
from grete.model.fence import job_scope

_log = logging.getLogger("grete.coordinator")
_LOOKS_IN_TTL = 30
_NOTICES_IN_TTL = 3
_PAUSE_S = (0.1, 0.5)
"""Between two looks at who leads: a thirtieth of the lease, within these."""


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
    scope, coordination, ttl_s = job_scope(submission.job), submission.coordination, submission.ttl_s
    pause_s = min(max(ttl_s / _LOOKS_IN_TTL, _PAUSE_S[0]), _PAUSE_S[1])
    not_before_s = clock.monotonic_s() + (ttl_s if has_stepped_down else 0)
    submission.waited_for = None if led is None else led.epoch
    notice = _notice(submission, clock)
    said = ""
    while True:
        _try(notice.renew)
        try:
            leading = coordination.leading_epoch(scope)
            if leading is not None:
                submission.waited_for = leading
                not_before_s = clock.monotonic_s()
            if clock.monotonic_s() >= not_before_s and (leading is None or coordination.is_silent(scope)):
                if leading is not None:
                    submission.succeeded = str(coordination.holder(scope))
                leadership = submission.elected(patiently=False)
                _try(notice.end)
                return leadership
        except GreteError as error:
            if not (error.may_pass or isinstance(error, HeldByOther)):
                raise
            if str(error) != said:
                said = str(error)
                _log.info("standing by for job %s: %s", submission.job.shown, said)
        if wait(pause_s):
            _try(notice.end)
            return None


def _notice(submission: Submission, clock: Clock) -> StandbyNotice:
    me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, clock.wall_ms())
    cells = submission.coordination.cells(job_scope(submission.job))
    return StandbyNotice(cells, me, clock, every_s=submission.ttl_s / _NOTICES_IN_TTL)


def _try(step: Callable[[], None]) -> None:
    """The notice is for people: one that cannot be written, or removed, keeps nobody from leading."""
    try:
        step()
    except GreteError as error:
        _log.info("the notice of standing by is not as it should be: %s", error)
