"""`grete leader show|watch|step-down`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from grete.cli.options import add_job_options, opened_job, seconds
from grete.cli.output import print_json, print_json_line, print_table
from grete.clock import Deadline, SystemClock
from grete.errors import JobError

if TYPE_CHECKING:
    from grete.operations import JobHandle

_POLLS_S = (0.1, 0.1)
_WATCH_S = 0.5


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show", help="who leads, under which epoch, and who stands by")
    add_job_options(show)
    show.set_defaults(run=_show)
    watch = actions.add_parser("watch", help="a line for each change of the leader, until it is interrupted")
    add_job_options(watch)
    watch.add_argument("--for", dest="for_s", type=seconds, metavar="S", help="end after so many seconds")
    watch.set_defaults(run=_watch)
    step_down = actions.add_parser("step-down", help="ask the leader to let one that stands by lead")
    add_job_options(step_down)
    step_down.add_argument(
        "--deadline", type=seconds, default=30.0, metavar="S", help="seconds to wait for the next leader"
    )
    step_down.add_argument("--reason", default="grete leader step-down", help="recorded in the history")
    step_down.add_argument("--no-wait", action="store_true", help="ask and return")
    step_down.add_argument("--force", action="store_true", help="also where nobody stands by")
    step_down.set_defaults(run=_step_down)


def _show(options: argparse.Namespace) -> int:
    with opened_job(options) as handle:
        row = {**_leader(handle), "standbys": [asdict(one) for one in handle.election.standbys()]}
    if options.output == "json":
        print_json(row)
        return 0
    waiting = [f"process {one['pid']} on {one['host']}" for one in row["standbys"]]
    led_by = row["leader"] or {}
    print_table(
        ("job", "leader", "since", "epoch", "standing by"),
        [
            (
                row["job"],
                _process(led_by),
                _time(led_by.get("since_ms")),
                row["epoch"],
                ", ".join(waiting) or "none",
            )
        ],
    )
    return 0


def _leader(handle: JobHandle) -> dict[str, Any]:
    epoch, holder = handle.election.leading_epoch(), handle.election.holder()
    return {
        "job": handle.job.shown,
        "leader": None if holder is None else asdict(holder),
        "epoch": None if holder is None else epoch,
    }


def _process(holder: dict[str, Any]) -> str:
    return f"process {holder['pid']} on {holder['host']}" if holder else "none"


def _time(since_ms: int | None) -> str:
    if since_ms is None:
        return ""
    return datetime.fromtimestamp(since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _watch(options: argparse.Namespace) -> int:
    until_s = float("inf") if options.for_s is None else time.monotonic() + options.for_s
    known: dict[str, Any] = {}
    with opened_job(options) as handle:
        while True:
            found = _leader(handle)
            if found != known:
                known = found
                _print_change(found, options.output)
            if time.monotonic() >= until_s:
                return 0
            time.sleep(_WATCH_S)


def _print_change(found: dict[str, Any], output: str) -> None:
    at_ms = SystemClock().wall_ms()
    if output == "json":
        print_json_line({"at_ms": at_ms, **found})
        sys.stdout.flush()
        return
    leads = (
        "no coordinator leads"
        if found["leader"] is None
        else f"{_process(found['leader'])} leads under epoch {found['epoch']}"
    )
    print(f"{_time(at_ms)} {found['job']}: {leads}", flush=True)


def _step_down(options: argparse.Namespace) -> int:
    with opened_job(options) as handle:
        if not options.force and not handle.election.standbys():
            raise JobError(
                f"no coordinator stands by for job {handle.job.shown}, so its containers would be left alone: start "
                f"one with grete run --standby --job {handle.job.shown}, or use --force"
            )
        epoch = handle.requests.step_down(options.reason)
        deadline = Deadline(SystemClock(), options.deadline, pauses_s=_POLLS_S)
        leading: int | None = epoch
        while not options.no_wait and (leading is None or leading <= epoch):
            if not deadline.pause():
                raise JobError(_too_late(handle, leading, options.deadline))
            leading = handle.election.leading_epoch()
        row = _leader(handle)
    if options.output == "json":
        print_json({**row, "asked": epoch})
    elif options.no_wait:
        print(f"{row['job']}: asked the coordinator of epoch {epoch} to step down")
    else:
        print(f"{row['job']}: {_process(row['leader'] or {})} leads under epoch {row['epoch']}")
    return 0


def _too_late(handle: JobHandle, leading: int | None, deadline_s: float) -> str:
    if leading is None:
        return (
            f"the coordinator of job {handle.job.shown} has stepped down, and no other leads after {deadline_s:g} s: "
            f"grete run --job {handle.job.shown}"
        )
    return f"the coordinator of job {handle.job.shown} has not stepped down within {deadline_s:g} s"
