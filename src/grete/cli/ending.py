"""Commands that ask a running job to end, and wait until it has."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from grete.cli.options import add_job_options, seconds
from grete.cli.output import print_json
from grete.clock import Deadline, SystemClock
from grete.errors import JobError
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.operations import JobHandle

_POLLS_S = (0.1, 0.1)


def add_ending_options(
    parser: argparse.ArgumentParser, *, deadline_s: float, meaning: str, reason: str
) -> None:
    """The job, `--deadline`, `--reason` and `--no-wait`."""
    add_job_options(parser)
    parser.add_argument("--deadline", type=seconds, default=deadline_s, metavar="S", help=meaning)
    parser.add_argument("--reason", default=reason, help="recorded in the history")
    parser.add_argument("--no-wait", action="store_true", help="ask and return")


def await_end(
    handle: JobHandle,
    options: argparse.Namespace,
    *,
    within_s: float,
    asked: str,
    too_late: str,
    if_silent: Callable[[], None] | None = None,
) -> int:
    """Wait for the end, unless `--no-wait` says that being `asked` is enough, and print the state.

    `if_silent` is called once it is known that the coordinator which was asked will not answer.

    Raises:
        JobError: `too_late`, when the job still runs after `within_s`.
    """
    deadline = Deadline(SystemClock(), within_s, pauses_s=_POLLS_S)
    while not options.no_wait and handle.election.holder() is not None:
        if not deadline.pause():
            raise JobError(too_late)
        if if_silent is not None and handle.election.is_silent():
            if_silent()
    state = handle.state()
    ended = asked if options.no_wait else "ended" if state is None else state.state
    if options.output == "json":
        print_json({"job": handle.job.shown, "state": ended})
    else:
        print(printable(f"{handle.job.shown}: {ended}"))
    return 0
