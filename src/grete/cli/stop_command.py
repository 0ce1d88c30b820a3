"""`grete stop`."""

from __future__ import annotations

import argparse
import time

from grete.cli.options import add_job_options, opened_job
from grete.errors import JobError

_POLL_S = 0.1
_GRACE_S = 15.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds before containers are killed")
    parser.add_argument("--reason", default="grete stop", help="recorded in the history")
    parser.add_argument("--no-wait", action="store_true", help="ask and return")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask the job to stop at a batch boundary and wait for it."""
    with opened_job(options) as handle:
        handle.request_stop(options.deadline, options.reason)
        if options.no_wait:
            return 0
        until_s = time.monotonic() + options.deadline + _GRACE_S
        while handle.holder() is not None:
            if time.monotonic() > until_s:
                raise JobError(f"job {handle.job} still runs {_GRACE_S:g} s after its deadline: see its log")
            time.sleep(_POLL_S)
        state = handle.state()
        print(f"{handle.job}: {'ended' if state is None else state.state}")
    return 0
