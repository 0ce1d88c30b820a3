"""`grete stop`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from grete.cli.ending import add_ending_options, await_end
from grete.cli.options import opened_job
from grete.errors import JobError

if TYPE_CHECKING:
    from grete.operations import JobHandle

_GRACE_S = 15.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_ending_options(
        parser, deadline_s=30.0, meaning="seconds before containers are killed", reason="grete stop"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask the job to stop at a batch boundary and wait until it has; end what a dead coordinator has left."""
    from grete.operations.orphans import end_orphans, orphans

    with opened_job(options) as handle:
        left = orphans(handle)
        if left:
            end_orphans(handle, left, options.deadline, options.reason)
            return await_end(handle, options, within_s=_GRACE_S, asked="stopped", too_late="")
        handle.requests.stop(options.deadline, options.reason)
        grace_s = max(_GRACE_S, 1.5 * handle.election.lease_s)
        too_late = (
            f"job {handle.job.shown} still runs {grace_s:g} s after its deadline; look into "
            f"{handle.state_directory / 'logs'}, or end its process"
        )
        return await_end(
            handle,
            options,
            within_s=options.deadline + grace_s,
            asked="stopping",
            too_late=too_late,
            if_silent=lambda: _end_what_is_left(handle, options),
        )


def _end_what_is_left(handle: JobHandle, options: argparse.Namespace) -> None:
    """The coordinator that was asked is dead or hangs: end what it has left, in its place.

    Raises:
        JobError: it has left nothing.
    """
    from grete.operations.orphans import end_orphans

    left = handle.launches()
    holder = handle.election.holder()
    if not left:
        raise JobError(
            f"job {handle.job.shown} is not running: {holder and holder.described()} has not renewed its leadership "
            f"and has left no container"
        )
    end_orphans(handle, left, options.deadline, options.reason)
