"""`grete drain`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from grete.cli.ending import add_ending_options, await_end
from grete.cli.options import opened_job
from grete.errors import JobError

if TYPE_CHECKING:
    from grete.operations import JobHandle


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_ending_options(parser, deadline_s=3600.0, meaning="seconds to wait for the end", reason="grete drain")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask the job to consume what is there and to end; wait until it has. The job goes on if the wait is over."""
    from grete.operations.orphans import orphans

    with opened_job(options) as handle:
        if orphans(handle):
            refuse(handle)
        handle.requests.drain(options.reason)
        too_late = (
            f"job {handle.job.shown} has not drained within {options.deadline:g} s and goes on draining; "
            f"`grete status` shows what is left, `grete stop` ends it at the next batch boundary"
        )
        return await_end(
            handle,
            options,
            within_s=options.deadline,
            asked="draining",
            too_late=too_late,
            if_silent=lambda: refuse(handle),
        )


def refuse(handle: JobHandle) -> NoReturn:
    """Containers without a coordinator cannot be asked to drain.

    Raises:
        JobError: with the way out.
    """
    raise JobError(
        f"no coordinator leads job {handle.job.shown}, and its containers go on alone: `grete run --job "
        f"{handle.job.shown} --until-drained` adopts and drains them, `grete stop` ends them now"
    )
