"""`grete status`."""

from __future__ import annotations

import argparse
from typing import Any

from grete.cli.options import add_job_options, opened_job, print_json, print_table


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show one job, or all of them."""
    from grete.assembly import grete_home, jobs, open_job

    if options.job or options.config:
        with opened_job(options) as handle:
            rows = [_row(handle)]
    else:
        rows = []
        for job in jobs(grete_home()):
            with open_job(job) as handle:
                rows.append(_row(handle))
    if options.output == "json":
        print_json(rows)
    elif rows:
        print_table(
            ("job", "state", "run by", "url", "checkpointed tasks", "message"),
            [
                (r["job"], r["state"], r["holder"], r["url"], r["checkpointed_tasks"], r["message"])
                for r in rows
            ],
        )
    else:
        print(f"no jobs in {grete_home()}")
    return 0


def _row(handle: Any) -> dict[str, Any]:
    state, holder = handle.state(), handle.holder()
    recorded = "never ran" if state is None else state.state
    running = holder is not None
    if recorded == "running" and not running:
        recorded = "died"  # its coordinator ended without writing a terminal state
    return {
        "job": str(handle.job),
        "state": recorded,
        "holder": "-" if holder is None else str(holder),
        "url": state.url if state is not None and running else "-",
        "token_file": state.token_file if state is not None and running else "",
        "run_id": "" if state is None else state.run_id,
        "epoch": 0 if state is None else state.epoch,
        "checkpointed_tasks": len(handle.checkpoints()),
        "localities": handle.localities(),
        "quarantined": [f"offset {q.offset}: {q.reason}" for q in handle.stream.quarantined],
        "message": "" if state is None else state.message,
    }
