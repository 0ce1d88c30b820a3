"""`grete drain`."""

from __future__ import annotations

import argparse
import time

from grete.cli.options import add_job_options, opened_job, seconds
from grete.cli.output import print_json
from grete.errors import JobError

_POLL_S = 0.1


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument(
        "--deadline", type=seconds, default=3600.0, metavar="S", help="seconds to wait for the end"
    )
    parser.add_argument("--reason", default="grete drain", help="recorded in the history")
    parser.add_argument("--no-wait", action="store_true", help="ask and return")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask the job to consume what is there and to end; wait until it has. The job goes on if the wait is over."""
    with opened_job(options) as handle:
        handle.request_drain(options.reason)
        until_s = time.monotonic() + options.deadline
        while not options.no_wait and handle.holder() is not None:
            if time.monotonic() > until_s:
                raise JobError(
                    f"job {handle.job.shown} has not drained within {options.deadline:g} s and goes on draining; "
                    f"`grete status` shows what is left, `grete stop` ends it at the next batch boundary"
                )
            time.sleep(_POLL_S)
        state = handle.state()
    ended = "draining" if options.no_wait else "ended" if state is None else state.state
    if options.output == "json":
        print_json({"job": handle.job.shown, "state": ended})
    else:
        print(f"{handle.job.shown}: {ended}")
    return 0
