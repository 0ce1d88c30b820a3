"""`grete status`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from grete.cli.options import add_job_options, job_text, opened_job
from grete.cli.output import print_json, print_table
from grete.errors import StreamNotFound
from grete.model.ids import SystemStreamPartition

if TYPE_CHECKING:
    from grete.assembly import JobHandle


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show one job, or all of them."""
    from grete.assembly import grete_home, jobs, open_job

    rows = []
    if options.job or options.config:
        with opened_job(options) as handle:
            rows.append(_row(handle))
    else:
        for job in jobs(grete_home()):
            with open_job(job) as handle:
                rows.append(_row(handle))
    if options.output == "json":
        print_json(rows)
    elif rows:
        columns = ("job", "state", "tasks", "behind", "run_by", "url", "message")
        headings = ("job", "state", "tasks", "records behind", "run by", "url", "message")
        print_table(headings, [[row[column] for column in columns] for row in rows])
    else:
        print(f"no jobs in {grete_home()}")
    return 0


def _row(handle: JobHandle) -> dict[str, Any]:
    state, holder = handle.state(), handle.holder()
    running = holder is not None
    recorded = "never ran" if state is None else state.state
    if recorded == "running" and not running:
        recorded = "died"  # its coordinator ended without writing a terminal state
    return {
        "job": job_text(handle.job),
        "state": recorded,
        "tasks": len(handle.assignments()),
        "behind": _behind(handle),
        "run_by": str(holder) if running else None,
        "url": state.url if state is not None and running else None,
        "token_file": state.token_file if state is not None and running else None,
        "run_id": None if state is None else state.run_id,
        "epoch": None if state is None else state.epoch,
        "hosts": handle.localities(),
        "quarantined": [f"offset {q.offset}: {q.reason}" for q in handle.stream.quarantined],
        "message": "" if state is None else state.message,
    }


def _behind(handle: JobHandle) -> int | None:
    """How many records of the inputs no checkpoint covers yet; None when an input stream is gone."""
    from grete.config.streams import broadcast_inputs, task_inputs

    config = handle.config()
    broadcast = broadcast_inputs(config)
    covered = _covered(handle)
    behind = 0
    for stream in {*task_inputs(config), *(ssp.system_stream for ssp in broadcast)}:
        with handle.system(stream.system) as system:
            try:
                partitions = system.offsets(stream.stream)
            except StreamNotFound:
                return None
        for partition, offsets in partitions.items():
            ssp = SystemStreamPartition(stream.system, stream.stream, partition)
            if ssp in broadcast or stream in task_inputs(config):
                oldest = int(offsets.oldest or offsets.upcoming)
                behind += int(offsets.upcoming) - max(oldest, covered.get(ssp, -1) + 1)
    return behind


def _covered(handle: JobHandle) -> dict[SystemStreamPartition, int]:
    """The last offset that every task of an SSP has processed."""
    covered: dict[SystemStreamPartition, int] = {}
    for commit in handle.checkpoints().values():
        for ssp, offset in commit.offsets.items():
            covered[ssp] = min(covered.get(ssp, int(offset)), int(offset))
    return covered
