"""`grete job`: delete a job; run a second version beside it, and let that go on instead."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from grete.cli import job_clones, job_elasticity
from grete.cli.options import add_job_options, given_settings, named_job, opened_job, say_that_spark_is_asked
from grete.cli.output import print_json
from grete.errors import HeldByOther, JobNotFound

if TYPE_CHECKING:
    from grete.operations.deletion import Belongings


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    delete = actions.add_parser("delete", help="remove a stopped job with its checkpoints and its state")
    add_job_options(delete)
    delete.add_argument("--execute", action="store_true", help="do it; without, show what would be removed")
    delete.set_defaults(run=_delete)
    job_clones.declare(actions)
    job_elasticity.declare(actions)


def _delete(options: argparse.Namespace) -> int:
    from grete.operations import deletion

    try:
        with opened_job(options) as handle:
            found, shown = deletion.belongings(handle), handle.job.shown
            holder = handle.election.holder()
            if holder is not None:
                raise HeldByOther(f"job {shown}", f"{holder}: stop it first: grete stop --job {shown}")
            why_left = deletion.delete_job(handle, say_that_spark_is_asked) if options.execute else ""
    except JobNotFound:
        return _forget(options)
    _print(options, shown, found, why_left)
    return 0


def _forget(options: argparse.Namespace) -> int:
    """A job of which a note is all there is, since no submit of it has succeeded.

    Raises:
        JobNotFound: there is not even that.
    """
    from grete.environment import grete_home
    from grete.metadata.job_index import jobs
    from grete.operations import deletion
    from grete.operations.job_handle import no_such_job

    job = named_job(options, given_settings(options))
    if job not in jobs(grete_home()):
        raise no_such_job(job, grete_home())
    if options.execute:
        deletion.forget_failed_submit(job, grete_home())
    done = "is forgotten" if options.execute else "would be forgotten; --execute does it"
    if options.output == "json":
        print_json({"job": job.shown, "deleted": options.execute})
    else:
        print(f"{job.shown}: no submit of it has succeeded; it {done}")
    return 0


def _print(options: argparse.Namespace, shown: str, found: Belongings, why_left: str) -> None:
    if options.output == "json":
        left = {"lineages_left": found.lineages if why_left else ""}
        print_json({"job": shown, "deleted": options.execute, **found.document(), **left})
        return
    print(f"{shown}: {'removed' if options.execute else 'would be removed; --execute does it'}")
    print(f"  coordinator stream  {found.coordinator_stream}")
    if found.checkpoint_log:
        print(f"  checkpoints         {found.checkpoint_log}")
    for name in found.changelogs:
        print(f"  changelog           {name}")
    for name in found.checkpoint_copies:
        print(f"  checkpoint copy     {name}")
    if found.log_stream:
        print(f"  log stream          {found.log_stream}")
    print(f"  folder              {found.folder}")
    if found.snapshots:
        print(f"  snapshots           {found.snapshots}")
    also = "".join(f", {name} too (other jobs may write it)" for name in found.left)
    if why_left:
        also += f", lineages at {found.lineages} too: remove them by hand ({why_left})"
    elif found.lineages:
        print(f"  lineages            {found.lineages}")
    print(f"Inputs and outputs stay{also}.")
