"""`grete status`."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from grete.cli.options import add_job_options, given_settings, named_job
from grete.cli.output import cell, print_json, print_paragraphs, print_table
from grete.cli.pages_link import pages_link
from grete.cli.watching import add_watch_option, watched

if TYPE_CHECKING:
    from grete.model.ids import JobId

_MOST_BEHIND = 20
_MOST_QUARANTINED = 5
_DEADLINE_S, _DEADLINE_OF_ONE_S = 3.0, 10.0
"""For all jobs together, and for one; what has not answered then is shown without."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    add_watch_option(parser)
    parser.set_defaults(run=watched(run))


def run(options: argparse.Namespace) -> int:
    """Show one job, or all of them."""
    from grete.environment import grete_home
    from grete.metadata.job_index import jobs

    is_one = options.job or options.config
    rows = [_row_of_one(options)] if is_one else _rows_of_all(jobs(grete_home()))
    if options.output == "json":
        print_json(rows)
    elif rows:
        columns = ("job", "state", "tasks", "behind", "run_by", "url", "message")
        headings = ("job", "state", "tasks", "records behind", "run by", "url", "message")
        cells = [[_shown(row, column) for column in columns] for row in rows]
        if is_one:
            print_table(headings[:-1], [cells[0][:-1]])
            texts = {
                "message": cells[0][-1],
                "expectations": _expectations(rows[0]["expectations"] or {}),
                "from other machines": rows[0]["public_url"],
                "token file": rows[0]["token_file"],
                "pages": pages_link(rows[0]["public_url"] or rows[0]["url"], rows[0]["token_file"]),
            }
            print_paragraphs(texts)
            _print_lag(rows[0]["lag"])
            _print_quarantined(rows[0]["quarantined"], rows[0]["quarantined_count"])
        else:
            print_table(headings, cells, cut_last=True)
    else:
        print(
            f"no jobs in {grete_home()}. `grete run --config FILE` submits one and runs it; "
            "GRETE_HOME names another home"
        )
    return 0


def _rows_of_all(jobs: list[JobId]) -> list[dict[str, Any]]:
    """A row of each job, at the same time: one whose brokers are away does not delay the others."""
    at_s = time.monotonic() + _DEADLINE_S
    from grete.operations.job_status import JobLook

    looks = [JobLook(job) for job in jobs]
    return [look.row_at(at_s, f"no answer within {_DEADLINE_S:g} s") for look in looks]


def _row_of_one(options: argparse.Namespace) -> dict[str, Any]:
    """The row of the job that the options name; of one whose brokers are away, what this machine knows.

    Raises:
        GreteError: there is no such job, or it cannot be read.
    """
    from grete.environment import grete_home
    from grete.metadata.job_index import where_submitted
    from grete.operations.job_status import JobLook

    settings = given_settings(options)
    job = named_job(options, settings)
    look = JobLook(job, settings)
    row = look.row_at(time.monotonic() + _DEADLINE_OF_ONE_S, f"no answer within {_DEADLINE_OF_ONE_S:g} s")
    if look.failure is not None and not look.failure.may_pass:
        raise look.failure
    if row["state"] == "unreachable":
        home = grete_home()
        folder = (settings or where_submitted(job, home)).job.state_directory(job, home)
        known = (
            f"its logs on this machine are in {folder / 'logs'}" if folder.exists() else "it never ran here"
        )
        row["message"] = f"the coordinator stream could not be asked; {known}: {row['message']}"
    return row


def _shown(row: dict[str, Any], column: str) -> Any:
    """A cell. The state counts containers that go on alone, the message records that are not understood."""
    alone = len(row["on_their_own"])
    if column == "state" and alone:
        return f"died, {alone} container{'' if alone == 1 else 's'} on {'its' if alone == 1 else 'their'} own"
    if column != "message" or not row["quarantined_count"]:
        return row[column]
    set_aside = f"{row['quarantined_count']} records are not understood"
    return "; ".join(part for part in (row["message"], set_aside) if part)


def _expectations(found: dict[str, dict[str, int]]) -> str:
    return "; ".join(f"{name}: {one['failed']} of {one['checked']} not met" for name, one in found.items())


def _print_quarantined(records: list[str], count: int) -> None:
    if count:
        print(
            f"\n{count} records of the coordinator stream are not understood; grete stream quarantine removes them"
        )
        for record in records[:_MOST_QUARANTINED]:
            print(f"  {cell(record)}")


def _print_lag(lag: dict[str, Any]) -> None:
    """The partitions that are most behind; all of them are in the JSON."""
    rows = [row for row in lag["partitions"] if row["lag"] != 0]
    rows.sort(key=lambda row: (row["lag"] is not None, -(row["lag"] or 0)))
    if not rows:
        return
    print()
    print_table(
        ("task", "partition", "checkpointed", "upcoming", "behind"),
        [
            (
                row["task"],
                f"{row['system']}.{row['stream']}.{row['partition']}",
                row["checkpointed"],
                row["upcoming"] or "unreachable",
                row["lag"],
            )
            for row in rows[:_MOST_BEHIND]
        ],
    )
    if len(rows) > _MOST_BEHIND:
        print(f"and {len(rows) - _MOST_BEHIND} more partitions that are behind: -o json")
