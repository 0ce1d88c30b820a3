"""`grete history`."""

from __future__ import annotations

import argparse

from grete.cli.options import add_job_options, count, opened_job
from grete.cli.output import cell, print_json
from grete.text_logs import printable, utc_text


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument("-n", type=count, default=None, metavar="ROWS", help="only the last rows")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show what happened to the job, oldest first."""
    with opened_job(options) as handle:
        rows = handle.history()
    if options.n is not None:
        rows = rows[max(0, len(rows) - options.n) :]
    if options.output == "json":
        own = [{"number": r.number, "timestamp_ms": r.timestamp_ms, "event": r.event} for r in rows]
        by = [{"username": r.username, "host": r.host} for r in rows]
        print_json([r.details | o | b for r, o, b in zip(rows, own, by, strict=True)])
        return 0
    for row in rows:
        details = "  ".join(f"{name}={cell(value)}" for name, value in row.details.items() if value)
        print(
            printable(
                f"{utc_text(row.timestamp_ms)}  {row.username or '-':10}  {row.event:18}  {details}".rstrip()
            )
        )
    return 0
