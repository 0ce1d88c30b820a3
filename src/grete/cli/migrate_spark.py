"""`grete migrate spark`: where a job would go on that was a query of Structured Streaming, and taking it over."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from grete.cli.migrate_take_over import finding, print_findings
from grete.cli.options import add_job_options, say_that_spark_is_asked
from grete.cli.output import print_json, print_table
from grete.cli.rewind_options import say_whether_written
from grete.errors import ConfigError
from grete.text_logs import printable, utc_text

if TYPE_CHECKING:
    from grete.migration.spark_take_over import SparkTakeOver

_EPILOG = (
    "Exit code 0: nothing stands in the way; 1: something does, and nothing was written. Stop the query first. "
    "Without --execute nothing is written."
)


def declare(origins: Any) -> None:
    """Declare the options."""
    parser = origins.add_parser("spark", help="a query of Structured Streaming", epilog=_EPILOG)
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help="the query's checkpointLocation: a folder of this machine, or an address that Spark reaches with the "
        "job's spark.* settings, such as hdfs://host/folder",
    )
    parser.add_argument(
        "--state",
        choices=("keep", "discard"),
        help="keep: go on with the query's state, where build makes the query that it was; discard: begin with empty "
        "state, though the query keeps some",
    )
    parser.add_argument("--execute", action="store_true", help="do it; without, show what would be done")
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show, write when asked to; exit 1 when something is in the way."""
    from grete.assembly.submission import RunOptions, submitted_settings
    from grete.clock import SystemClock
    from grete.config.places import place_of
    from grete.environment import grete_home
    from grete.migration.spark_take_over import execute, take_over_query
    from grete.model.startpoint import StateChoice
    from grete.spark.lineage.location import open_location

    if not options.config:
        raise ConfigError("name the configuration of the job that is to go on, with --config FILE")
    logging.getLogger("grete").addHandler(logging.NullHandler())  # errors say what clients would say as well
    home, clock = grete_home(), SystemClock()
    settings = submitted_settings(RunOptions(config_paths=options.config), home, clock)
    location = open_location(place_of(options.checkpoint), "--checkpoint", settings, say_that_spark_is_asked)
    state = StateChoice(options.state) if options.state else None
    found = take_over_query(location, settings, home, clock, state=state, on_asking=say_that_spark_is_asked)
    executed = options.execute and not found.blocks
    if executed:
        execute(found, settings, home, clock, say_that_spark_is_asked)
    if options.output == "json":
        print_json({**_document(found), "executed": executed})
    else:
        _print(found)
        say_whether_written(executed=executed)
        if executed:
            print(
                f"the checkpoints of {found.job.shown} were written: `grete run` with this configuration goes on"
            )
    return 1 if found.blocks else 0


def _document(found: SparkTakeOver) -> dict[str, Any]:
    query = found.query
    return {
        "job": found.job.shown,
        "checkpoint": str(query.folder),
        "query": query.id,
        "version": query.version,
        "committed": query.committed,
        "planned": query.planned,
        "blocks": found.blocks,
        "tasks": [
            {
                "task": task.task,
                "container": task.container,
                "checkpoint": {str(ssp): task.checkpoint.get(ssp) for ssp in task.ssps},
            }
            for task in found.tasks
        ],
        "planned_not_committed": {
            f"{topic}.{partition}": offset
            for (topic, partition), offset in sorted(query.planned_ends.items())
        },
        "findings": [finding(note) for note in found.notes],
    }


def _print(found: SparkTakeOver) -> None:
    query = found.query
    at = "" if query.committed_at_s is None else f", at {utc_text(int(query.committed_at_s * 1000))}"
    print(
        printable(
            f"{query.folder}: query {query.id or 'without id'}, log {query.version}, batch {query.committed} is the "
            f"last committed{at}, {query.planned} the last planned"
        )
    )
    rows = [
        (task.task, task.container, ssp, task.checkpoint.get(ssp))
        for task in found.tasks
        for ssp in task.ssps
    ]
    print_table(("task", "container", "input", "checkpoint"), rows)
    if query.planned_ends:
        ends = ", ".join(
            f"{topic}.{partition} {end}" for (topic, partition), end in sorted(query.planned_ends.items())
        )
        print(printable(f"planned and not committed, up to before: {ends}"))
    print_findings(found.notes)
