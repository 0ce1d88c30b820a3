"""`grete job elasticity`."""

from __future__ import annotations

import argparse

from grete.cli.job_clones import run_until_drained
from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json


def declare(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = actions.add_parser(
        "elasticity", help="let more tasks share each partition, by their keys, from where the job stands"
    )
    add_job_options(parser)
    parser.add_argument(
        "--factor", type=int, required=True, metavar="N", help="tasks for each partition; 1 is one, as usual"
    )
    parser.add_argument(
        "--stores-by-key",
        action="store_true",
        help="entries of the job's stores have the keys of messages, and go to their tasks",
    )
    parser.add_argument(
        "--execute", action="store_true", help="do it; without, say whether the job has to run for it"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from grete.operations.elasticity import set_elasticity
    from grete.operations.meeting import meeting

    with opened_job(options) as handle:
        job, before = handle.job, handle.settings.job.elasticity_factor
        found = meeting(handle)
    if options.execute:
        by_key = options.stores_by_key
        found = set_elasticity(job, options.factor, run_until_drained, stores_by_key=by_key)
    if options.output == "json":
        at = {str(ssp): offset for ssp, offset in sorted(found.at.items())}
        made = {"job": job.shown, "before": before, "factor": options.factor, "offsets": at}
        print_json({**made, "apart": bool(found.behind), "done": options.execute})
        return 0
    if options.execute:
        print(f"{options.factor} tasks share each partition when it runs again: grete run --job {job.shown}")
    else:
        first = (
            "first it runs to where all tasks of a partition stand alike, and then " if found.behind else ""
        )
        print(
            f"with --execute, {first}{job.shown} has {options.factor} tasks for each partition in place of {before}"
        )
    return 0
