"""`grete checkpoint show`: Samza's checkpoint tool, reading."""

from __future__ import annotations

import argparse

from grete.checkpoint.text import format_checkpoints
from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show", help="last processed offsets, as Samza's checkpoint tool prints them")
    add_job_options(show)
    show.add_argument("--task", action="append", default=[], help="only this task; may be repeated")
    show.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show every task's checkpoint: offsets as properties, or JSON with lineage, batch and store positions."""
    with opened_job(options) as handle:
        commits = handle.checkpoints()
    commits = {task: c for task, c in commits.items() if not options.task or task in options.task}
    if options.output == "json":
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
        return 0
    for line in format_checkpoints({task: commit.offsets for task, commit in commits.items()}):
        print(line)
    return 0
