"""`grete migrate to-spark`: a query of plain Spark goes on where a pipeline stands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from grete.cli.options import add_job_options, opened_job, say_that_spark_is_asked
from grete.cli.output import print_json
from grete.cli.rewind_options import say_whether_written
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.migration.to_spark import WayBack

_EPILOG = (
    "Stop the job first. The query has to read the same sources and to keep state by the same operators, in the same "
    "order: its frame is what build returns. Without --execute nothing is written."
)


def declare(origins: Any) -> None:
    """Declare the options."""
    parser = origins.add_parser(
        "to-spark", help="the way back: a pipeline to a query of Spark", epilog=_EPILOG
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help="what the query gets as checkpointLocation: a folder that does not exist or is empty, or an address "
        "that Spark reaches",
    )
    parser.add_argument("--execute", action="store_true", help="do it; without, show what would be done")
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show, and write when asked to."""
    from grete.migration.to_spark import execute, way_back

    with opened_job(options) as handle:
        found = way_back(handle, say_that_spark_is_asked)
        if options.execute:
            execute(found, handle, options.checkpoint, say_that_spark_is_asked)
    if options.output == "json":
        print_json({**_document(found), "checkpoint": options.checkpoint, "executed": options.execute})
    else:
        _print(found, options.checkpoint)
        say_whether_written(executed=options.execute)
    return 0


def _document(found: WayBack) -> dict[str, Any]:
    query = found.query
    return {
        "job": found.job.shown,
        "lineage": str(query.folder),
        "committed": query.committed,
        "sources": list(found.sources),
        "operators": list(query.operators),
    }


def _print(found: WayBack, checkpoint: str) -> None:
    query = found.query
    print(printable(f"{found.job.shown}: batch {query.committed} is the last committed, in {query.folder}"))
    print(
        printable(
            f"sources, in this order: {', '.join(one or 'one of Spark itself' for one in found.sources)}"
        )
    )
    print(printable(f"operators that keep state: {', '.join(query.operators) or 'none'}"))
    print(printable(f"a query with checkpointLocation {checkpoint} goes on from there"))
