"""`grete checkpoint show`."""

from __future__ import annotations

import argparse

from grete.checkpoint.text import format_checkpoints
from grete.cli.options import add_job_options, opened_job, print_json


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show", help="last processed offsets, as Samza's checkpoint tool prints them")
    add_job_options(show)
    show.add_argument("--details", action="store_true", help="lineage, batch and store positions too (json)")
    show.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the checkpoint of every task."""
    with opened_job(options) as handle:
        commits = handle.checkpoints()
    if options.output == "json" or options.details:
        print_json(
            {
                task: {
                    "offsets": {str(ssp): offset for ssp, offset in sorted(commit.offsets.items())},
                    "lineage": commit.lineage,
                    "batch_id": commit.batch_id,
                    "store_positions": dict(commit.store_positions),
                }
                for task, commit in sorted(commits.items())
            }
        )
    else:
        for line in format_checkpoints({task: commit.offsets for task, commit in commits.items()}):
            print(line)
    return 0
