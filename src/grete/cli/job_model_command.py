"""`grete job-model`."""

from __future__ import annotations

import argparse
from typing import Any

from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json, print_table


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the model that the stream remembers: containers, tasks, their inputs, changelog partitions, hosts."""
    with opened_job(options) as handle:
        assignments, changelog = handle.assignments(), handle.changelog_mapping()
        hosts, commits = handle.localities(), handle.checkpoints.read()
        inputs = handle.task_inputs()
    rows: list[dict[str, Any]] = [
        {
            "task": task,
            "container": container,
            "host": hosts.get(container),
            "changelog_partition": changelog.get(task),
            "inputs": [str(ssp) for ssp in sorted(inputs.get(task, ()))],
            "checkpoint": {str(ssp): offset for ssp, offset in sorted(commits[task].offsets.items())}
            if task in commits
            else {},
        }
        for task, container in sorted(assignments.items())
    ]
    if options.output == "json":
        print_json(rows)
    elif rows:
        print_table(
            ("task", "container", "host", "changelog partition", "inputs", "checkpoint"),
            [
                (
                    row["task"],
                    row["container"],
                    row["host"],
                    row["changelog_partition"],
                    ", ".join(row["inputs"]),
                    ", ".join(f"{ssp}: {offset}" for ssp, offset in row["checkpoint"].items()),
                )
                for row in rows
            ],
        )
    else:
        print("no job model yet: the job has not been run")
    return 0
