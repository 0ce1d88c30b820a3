"""`grete run`: submit a job and coordinate it in the foreground until it ends, over outages of its stores."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from grete.assembly.incarnation import Incarnation
from grete.assembly.open_files import raise_open_files_limit
from grete.assembly.stop_signals import Requests, StopSignals
from grete.assembly.submission import RunOptions as RunOptions
from grete.coordination.base import Leadership
from grete.coordinator.view import View
from grete.environment import grete_home
from grete.errors import Fenced, GreteError, HeldByOther, LeadershipLost, SteppedDown
from grete.private_files import tighten_home

_log = logging.getLogger("grete.coordinator")
_PAUSE_S = (0.5, 5.0)
"""Between attempts to come back. The store's own timeouts come on top, and a broker that is back answers at once."""


def run_job(
    options: RunOptions,
    on_view: Callable[[View], None] | None = None,
    signals: Requests | None = None,
) -> int:
    """Run a job until it ends; returns 0 when it finished or was stopped.

    An incarnation that cannot reach its stores any more ends, since it cannot know whether it still leads; its
    containers go on. A new one, with an epoch of its own, follows as soon as the stores answer (G15), unless another
    coordinator has led meanwhile. `on_view` gets each incarnation's view as soon as there is one, to show progress
    from.

    A process that stands by (`RunOptions.stands_by`) waits while another one leads, and again when it was succeeded
    or has stepped down. It ends with the job.

    `signals` are those of the process: SIGTERM and SIGINT stop the job, unless others are given.

    Raises:
        ConfigError: the configuration is wrong; nothing was written.
        HeldByOther: the job runs already; nothing was written.
        Fenced, LeadershipLost: another coordinator has taken over.
        LogUnreachable: the stores did not answer when the job was to be started.
    """
    raise_open_files_limit()
    return coordinate(options, StopSignals() if signals is None else signals, on_view)


def coordinate(options: RunOptions, signals: Requests, on_view: Callable[[View], None] | None = None) -> int:
    """As `run_job`, asked to end by `signals`; nothing of the process around it is changed."""
    tighten_home(grete_home())
    led: Leadership | None = None
    first_epoch: int | None = None
    cause: GreteError | None = None
    pause_s = _PAUSE_S[0]
    has_stepped_down = False
    while True:
        with ExitStack() as stack:
            one = Incarnation(
                options, stack, signals, on_view, led, first_epoch, has_stepped_down=has_stepped_down
            )
            try:
                return one.execute()
            except HeldByOther as error:
                raise cause or error from error
            except GreteError as error:
                has_stepped_down = isinstance(error, SteppedDown)
                if has_stepped_down and not options.stands_by:
                    return 0
                if not (error.may_pass or _is_succeeded(error, options)):
                    raise
                if one.led is not None and one.can_be_followed:
                    led, pause_s = one.led, _PAUSE_S[0]
                    first_epoch = led.epoch if first_epoch is None else first_epoch
                    options = replace(
                        options, config_paths=(), config={}, overrides={}, job=one.job, take_over=False
                    )
                    _log.warning(
                        "coordinator of epoch %d has ended, another will follow: %s", led.epoch, error
                    )
                elif led is None or _is_succeeded(error, options):
                    raise
                else:
                    _log.warning("no coordinator has followed that of epoch %d yet: %s", led.epoch, error)
                cause = error
        is_to_end, stops_job = signals.wait(pause_s), signals.again()
        if stops_job and isinstance(cause, LeadershipLost):
            # lost while the job was stopped, by a service that stood still: unless another leads, the stop is
            # finished. Else its containers were left alone, to end or not, and the job stayed as it was.
            options = replace(options, stands_by=False)
        elif is_to_end:
            raise cause
        pause_s = min(2 * pause_s, _PAUSE_S[1])


def _is_succeeded(error: GreteError, options: RunOptions) -> bool:
    """Whether another coordinator leads, or may by now, and this process may go on nevertheless."""
    if options.stands_by:
        return isinstance(error, Fenced | LeadershipLost | SteppedDown)
    return isinstance(error, LeadershipLost)
