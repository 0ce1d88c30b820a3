"""`grete checkpoint rewind`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from grete.cli.options import opened_job
from grete.cli.output import print_json, print_table
from grete.cli.rewind_options import add_write_options, input_or_ssp, is_live, say_whether_written
from grete.model.ids import TaskName
from grete.model.startpoint import StateChoice

if TYPE_CHECKING:
    from grete.operations.rewind import RewindPlan

_EXPLAINED = (
    "oldest, upcoming, offset:N (the next to be read), timestamp:TIME (ISO 8601, in UTC without a zone, "
    "or milliseconds), batch:N (after the last batch of that number) or batch:LINEAGE/N"
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only this command has."""
    parser.add_argument("--to", required=True, metavar="WHERE", help=_EXPLAINED)
    parser.add_argument(
        "--ssp",
        action="append",
        default=[],
        help="only this input, SYSTEM.STREAM, or this partition of it, SYSTEM.STREAM.N; may be repeated",
    )
    parser.add_argument(
        "--state",
        choices=[choice.value for choice in StateChoice],
        default=StateChoice.KEEP.value,
        help="what becomes of the stores: keep them, restore what they were there, or discard them",
    )
    add_write_options(parser)


def run(options: argparse.Namespace) -> int:
    """Show what the rewind does, and do it with `--execute`."""
    from grete.checkpoint.rewind_target import parse_target
    from grete.operations.rewind import RewindRequest, execute_rewind, plan_rewind

    request = RewindRequest(
        parse_target(options.to),
        [TaskName(task) for task in options.task],
        [input_or_ssp(text) for text in options.ssp],
        StateChoice(options.state),
    )
    with opened_job(options) as handle:
        plan = plan_rewind(handle, request)
        if options.execute:
            live = is_live(handle, options)
            execute_rewind(handle, plan, live=live, to=options.to, reason=options.reason)
    if options.output == "json":
        print_json(_document(plan, executed=options.execute))
    else:
        _print(plan, executed=options.execute)
    return 0


def _document(plan: RewindPlan, *, executed: bool) -> dict[str, Any]:
    return {
        "executed": executed,
        "reprocessed": sum(row.reprocessed for row in plan.rows),
        "skipped": sum(row.skipped for row in plan.rows),
        "ssps": [
            {
                "task": row.task,
                "ssp": str(row.ssp),
                "current": str(row.current),
                "new": str(row.new),
                "reprocessed": row.reprocessed,
                "skipped": row.skipped,
            }
            for row in plan.rows
        ],
        "state": {
            task: {"choice": request.choice.value, "positions": dict(request.positions)}
            for task, request in sorted(plan.states.items())
        },
        "unread": [str(ssp) for ssp in plan.unread],
    }


def _print(plan: RewindPlan, *, executed: bool) -> None:
    print_table(
        ("task", "input", "next offset now", "then", "processed again", "skipped"),
        [(row.task, str(row.ssp), row.current, row.new, row.reprocessed, row.skipped) for row in plan.rows],
    )
    if plan.unread:
        print(
            f"by that batch nothing was read of {', '.join(map(str, plan.unread))}: read from the first record; to "
            f"leave an input where it is, name the others with --ssp"
        )
    choices = sorted({request.choice.value for request in plan.states.values()}) or [StateChoice.KEEP.value]
    print(f"stores: {choices[0]}; outputs of what is processed again are written again")
    if executed:
        print("takes effect at the next start, or at the next batch of a running job")
    say_whether_written(executed=executed)
