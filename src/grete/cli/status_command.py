"""`grete status`."""

from __future__ import annotations

import argparse
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grete.cli.options import add_job_options, given_settings, named_job
from grete.cli.output import cell, print_json, print_paragraphs, print_table
from grete.clock import SystemClock
from grete.errors import GreteError, JobNotFound
from grete.metadata.history import rests_in_words
from grete.metadata.quarantine import SHOWN

if TYPE_CHECKING:
    from grete.config.settings import Settings
    from grete.coordination.base import Holder
    from grete.metadata.job_state import JobState
    from grete.model.ids import ContainerId, JobId
    from grete.operations import JobHandle

_UNKNOWN_LAG: dict[str, Any] = {"total": None, "tasks": {}, "partitions": [], "missing": []}
_ANSWER_S = 2.0
_MOST_BEHIND = 20
_MOST_QUARANTINED = 5
_DEADLINE_S, _DEADLINE_OF_ONE_S = 3.0, 10.0
"""For all jobs together, and for one; what has not answered then is shown without."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.set_defaults(run=run)


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
            print_paragraphs({"message": cells[0][-1], "token file": rows[0]["token_file"]})
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


class _Look(threading.Thread):
    """Looks at one job. `row` is what is known of it so far, `failure` why the rest is not."""

    def __init__(self, job: JobId, settings: Settings | None = None) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._settings = settings
        self.row: dict[str, Any] | None = None
        self.failure: GreteError | None = None
        self.start()

    def run(self) -> None:
        """All but the lag first."""
        from grete.operations import open_job

        try:
            with open_job(self._job, self._settings) as handle:
                self.row = _standing_row(handle)
                lag = handle.lag().document()
                self.row = {**self.row, "spark": _spark(handle), "behind": lag["total"], "lag": lag}
        except GreteError as error:
            self.failure = error

    def row_at(self, at_s: float, no_answer: str) -> dict[str, Any]:
        """The job's row, with what is missing at that time on the monotonic clock named in its message."""
        self.join(max(0.0, at_s - time.monotonic()))
        failure = self.failure
        if self.row is not None:
            missing = f"the lag is not known: {failure or no_answer}" if self.is_alive() or failure else ""
            return {**self.row, "message": "; ".join(filter(None, (self.row["message"], missing)))}
        if isinstance(failure, JobNotFound):
            return _empty_row(self._job, "never ran", "no submit of it has succeeded")
        is_there = failure is None or failure.may_pass
        return _empty_row(self._job, "unreachable" if is_there else "unreadable", str(failure or no_answer))


def _rows_of_all(jobs: list[JobId]) -> list[dict[str, Any]]:
    """A row of each job, at the same time: one whose brokers are away does not delay the others."""
    at_s = time.monotonic() + _DEADLINE_S
    looks = [_Look(job) for job in jobs]
    return [look.row_at(at_s, f"no answer within {_DEADLINE_S:g} s") for look in looks]


def _row_of_one(options: argparse.Namespace) -> dict[str, Any]:
    """The row of the job that the options name; of one whose brokers are away, what this machine knows.

    Raises:
        GreteError: there is no such job, or it cannot be read.
    """
    from grete.environment import grete_home
    from grete.metadata.job_index import where_submitted

    settings = given_settings(options)
    job = named_job(options, settings)
    look = _Look(job, settings)
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


def _empty_row(job: JobId, state: str, message: str) -> dict[str, Any]:
    unknown = ("behind", "run_by", "silent_s", "url", "token_file", "run_id", "epoch", "processors")
    return {
        "job": job.shown,
        "state": state,
        "tasks": None,
        "lag": _UNKNOWN_LAG,
        **dict.fromkeys(unknown),
        "hosts": {},
        "quarantined": [],
        "quarantined_count": 0,
        "on_their_own": [],
        "resting": {},
        "spark": None,
        "message": message,
    }


def _spark(handle: JobHandle) -> dict[str, Any] | None:
    """Spark's figures of a running pipeline, by container, from its coordinator; None where that does not answer."""
    state = handle.state()
    if state is None or state.state != "running" or not state.url or not handle.settings.job.is_pipeline:
        return None
    from grete.http_client import JobCoordinatorClient

    try:
        token = Path(state.read_token_file or state.token_file)
        with closing(JobCoordinatorClient(state.url, token, timeout_s=_ANSWER_S)) as client:
            containers = client.get("/api/v1/job", patience_s=0)["containers"]
    except (GreteError, OSError, KeyError):  # another user's, another machine's, or about to end
        return None
    return {id_: one.get("spark") for id_, one in containers.items()}


def _running_alone(handle: JobHandle) -> list[ContainerId]:
    """The containers of this machine that go on without a coordinator."""
    from grete.operations.orphans import orphans, running_here

    return running_here(orphans(handle))


def _standing_row(handle: JobHandle) -> dict[str, Any]:
    """All but the lag, which is asked of other systems."""
    state, holder = _standing(handle)
    running, silent_s = holder is not None, _silent_s(handle, holder)
    processors = _processors(handle) if state is not None and state.state == "running" else None
    recorded = "never ran" if state is None else state.state
    if recorded == "running":  # or its coordinator ended without writing a terminal state
        recorded = ((state and state.standing) or recorded) if running else "died"
    alone = _running_alone(handle) if recorded == "died" else []
    resting = handle.rests() if running else {}
    said = [
        _processors_in_words(processors, is_led=running),
        rests_in_words(resting, len(set(handle.assignments().values()))),
        state.message if state else "",
    ]
    quarantined = handle.quarantined()
    return {
        "job": handle.job.shown,
        "state": recorded,
        "tasks": len(handle.active_tasks()),
        "behind": None,
        "lag": _UNKNOWN_LAG,
        "run_by": None if holder is None else str(holder) + _silence(silent_s),
        "silent_s": silent_s,
        "url": state.url if state is not None and running else None,
        "token_file": (state.read_token_file or state.token_file) if state is not None and running else None,
        "run_id": None if state is None else state.run_id,
        "epoch": None if state is None else state.epoch,
        "hosts": handle.localities(),
        "quarantined": [str(one) for one in quarantined[:SHOWN]],
        "quarantined_count": len(quarantined),
        "on_their_own": alone,
        "processors": processors,
        "resting": resting,
        "spark": None,
        "message": "; ".join(text for text in said if text),
    }


def _processors(handle: JobHandle) -> list[str] | None:
    """The ids of the processors that gave notice within the lease; None of a job that has another launcher."""
    from grete.config.choices import LauncherChoice
    from grete.embedded.orders import scope_of

    if handle.settings.job.launcher != LauncherChoice.PROCESSORS:
        return None
    return sorted(one.id for one in handle.election.heard_of(scope_of(handle.job)))


def _processors_in_words(processors: list[str] | None, *, is_led: bool) -> str:
    """An empty text where all is well: processors live, and one of them leads."""
    if processors is None or (processors and is_led):
        return ""
    if is_led:
        return "no processor was heard of within the lease"
    if processors:
        return f"{len(processors)} of its processors live, and none leads yet"
    return "no processor lives; it goes on when one starts"


def _shown(row: dict[str, Any], column: str) -> Any:
    """A cell. The state counts containers that go on alone, the message records that are not understood."""
    alone = len(row["on_their_own"])
    if column == "state" and alone:
        return f"died, {alone} container{'' if alone == 1 else 's'} on {'its' if alone == 1 else 'their'} own"
    if column != "message" or not row["quarantined_count"]:
        return row[column]
    set_aside = f"{row['quarantined_count']} records are not understood"
    return "; ".join(part for part in (row["message"], set_aside) if part)


def _silent_s(handle: JobHandle, holder: Holder | None) -> int | None:
    """For how long nothing was heard of the coordinator, when that is more than its lease; by its clock and ours."""

    if holder is None or holder.heard_ms is None:
        return None
    silent_s = SystemClock().wall_ms() / 1000 - holder.heard_ms / 1000
    return round(silent_s) if silent_s > handle.settings.coordinator.lease_ttl_s else None


def _silence(silent_s: int | None) -> str:
    return "" if silent_s is None else f", not heard of for {silent_s} s: dead, cut off, or clocks differ"


def _standing(handle: JobHandle) -> tuple[JobState | None, Holder | None]:
    """The recorded state and who leads, looked at again if something was written in between."""
    state, holder = handle.state(), handle.election.holder()
    if holder is not None or state is None or state.state != "running":
        return state, holder
    again = handle.state()  # the end is recorded before the leadership is released
    return (state, None) if again == state else (again, handle.election.holder())


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
