"""`grete stop`."""

from __future__ import annotations

import argparse
import time

from grete.cli.options import add_job_options, opened_job, seconds
from grete.cli.output import print_json
from grete.errors import JobError

_POLL_S = 0.1
_GRACE_S = 15.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument(
        "--deadline", type=seconds, default=30.0, metavar="S", help="seconds before containers are killed"
    )
    parser.add_argument("--reason", default="grete stop", help="recorded in the history")
    parser.add_argument("--no-wait", action="store_true", help="ask and return")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask the job to stop at a batch boundary and wait until it has."""
    with opened_job(options) as handle:
        handle.request_stop(options.deadline, options.reason)
        until_s = time.monotonic() + options.deadline + _GRACE_S
        while not options.no_wait and handle.holder() is not None:
            if time.monotonic() > until_s:
                raise JobError(
                    f"job {handle.job.shown} still runs {_GRACE_S:g} s after its deadline; look into "
                    f"{handle.state_directory / 'logs'}, or end its process"
                )
            time.sleep(_POLL_S)
        state = handle.state()
    ended = "stopping" if options.no_wait else "ended" if state is None else state.state
    if options.output == "json":
        print_json({"job": handle.job.shown, "state": ended})
    else:
        print(f"{handle.job.shown}: {ended}")
    return 0
