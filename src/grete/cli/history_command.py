"""`grete history`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from grete.cli.options import add_job_options, opened_job, print_json


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show what happened to the job, oldest first."""
    with opened_job(options) as handle:
        rows = handle.history()
    if options.output == "json":
        print_json(
            [
                {"number": r.number, "timestamp_ms": r.timestamp_ms, "username": r.username, "event": r.event}
                | r.details
                for r in rows
            ]
        )
        return 0
    for row in rows:
        when = datetime.fromtimestamp(row.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        details = "  ".join(f"{name}={value}" for name, value in row.details.items() if value)
        print(f"{when}  {row.event:18} {details}")
    return 0
