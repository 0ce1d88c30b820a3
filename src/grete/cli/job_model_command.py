"""`grete job-model`."""

from __future__ import annotations

import argparse

from grete.cli.options import add_job_options, opened_job, print_json, print_table


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the model that the stream remembers: containers, tasks, changelog partitions, hosts."""
    with opened_job(options) as handle:
        assignments, changelog = handle.assignments(), handle.changelog_mapping()
        hosts, commits = handle.localities(), handle.checkpoints()
    rows = [
        {
            "task": task,
            "container": container,
            "host": hosts.get(container, "-"),
            "changelog_partition": changelog.get(task, -1),
            "checkpoint": {str(s): o for s, o in sorted(commits[task].offsets.items())}
            if task in commits
            else {},
        }
        for task, container in sorted(assignments.items())
    ]
    if options.output == "json":
        print_json(rows)
    else:
        print_table(
            ("task", "container", "host", "changelog partition", "checkpoint"),
            [
                (
                    r["task"],
                    r["container"],
                    r["host"],
                    r["changelog_partition"],
                    ", ".join(f"{ssp}: {offset}" for ssp, offset in r["checkpoint"].items()) or "-",
                )
                for r in rows
            ],
        )
    return 0
