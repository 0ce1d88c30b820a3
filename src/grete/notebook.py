"""Jobs in a notebook: submit one, look at it, read its streams and checkpoints as tables, stop it.

A job runs in processes of its own and goes on when the notebook's kernel ends. What these functions return draws
itself; `frame()` makes a pandas DataFrame of it. Everything is read as the command line reads it.
"""

from __future__ import annotations

import html
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from grete.checkpoint.lag import JobLag
from grete.clock import Deadline, SystemClock
from grete.config.load import load
from grete.config.settings import Settings
from grete.environment import grete_home
from grete.errors import ConfigError, GreteError, JobError, JobNotFound
from grete.metadata.job_index import jobs as known_jobs
from grete.model.ids import JobId, SystemStream
from grete.operations.dead_letters import open_dead_letters
from grete.operations.job_handle import open_job
from grete.operations.job_status import empty_row, standing_row
from grete.operations.store_entries import store_entries
from grete.operations.stream_records import decoded, oldest_offset, read_records
from grete.text_logs import printable

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = ["NotebookJob", "NotebookTable", "job", "jobs", "submit"]
_START_S, _STOP_S = 120.0, 30.0
_MOST_ROWS = 1_000
_WRONG = 2
"""The exit code of a wrong configuration."""


class NotebookTable:
    """Rows with columns, in their order."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns = list(columns)
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return "\n".join("  ".join(_text(row.get(one)) for one in self.columns) for row in self.rows)

    def frame(self) -> pd.DataFrame:
        """The same as a pandas DataFrame; pandas comes with `grete[spark]`."""
        import pandas as pd

        return pd.DataFrame(
            [[row.get(one) for one in self.columns] for row in self.rows], columns=self.columns
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(one)}</th>" for one in self.columns)
        shown = self.rows[:_MOST_ROWS]
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_text(row.get(one)))}</td>' for one in self.columns)}</tr>"
            for row in shown
        )
        more = f"<p>and {len(self.rows) - len(shown):,} more rows</p>" if len(shown) < len(self.rows) else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: Any) -> str:
    return "" if value is None else printable(str(value))


class NotebookJob:
    """A job of this home, running or not. Each method looks at it anew."""

    def __init__(self, id: JobId) -> None:
        self.id = id

    def __repr__(self) -> str:
        row = self._row()
        return f"{row['job']}: {row['state']}" + (f", {row['message']}" if row["message"] else "")

    def _repr_html_(self) -> str:
        row = self._row()
        facts = ("state", "tasks", "run_by", "epoch", "message")
        return NotebookTable(
            ["", " "], [{"": name, " ": row[name]} for name in facts if row[name] is not None]
        )._repr_html_()

    def _row(self) -> dict[str, Any]:
        with open_job(self.id) as handle:
            return standing_row(handle)

    def _is_run_by(self, pid: int) -> bool:
        """Whether the coordinator that was started there leads, and its containers run."""
        try:
            with open_job(self.id) as handle:
                holder = handle.election.holder()
                return holder is not None and holder.pid == pid and standing_row(handle)["state"] == "running"
        except JobNotFound:
            return False  # not yet

    @property
    def state(self) -> str:
        """As `grete status` shows it: running, finished, stopped, failed, died."""
        return str(self._row()["state"])

    def lag(self) -> NotebookTable:
        """What is left to process, by task and partition."""
        with open_job(self.id) as handle:
            return _by_partition(handle.lag())

    def behind(self) -> int | None:
        """Records left to process; None where a system's offsets are no numbers."""
        with open_job(self.id) as handle:
            return handle.lag().total

    def history(self) -> NotebookTable:
        """Deployments, attempts, exits and changes, the newest first."""
        with open_job(self.id) as handle:
            events = handle.history()
        rows = [
            {
                "when": _when(one.timestamp_ms),
                "event": one.event,
                "details": ", ".join(f"{name}={value}" for name, value in one.details.items() if value),
                "who": one.username,
            }
            for one in reversed(events)
        ]
        return NotebookTable(("when", "event", "details", "who"), rows)

    def checkpoint(self) -> NotebookTable:
        """The last processed offset of each partition, by task."""
        with open_job(self.id) as handle:
            commits = handle.checkpoints.read()
        rows = [
            {"task": task, "partition": str(ssp), "offset": offset, "batch": commit.batch_id}
            for task, commit in sorted(commits.items())
            for ssp, offset in sorted(commit.offsets.items())
        ]
        return NotebookTable(("task", "partition", "offset", "batch"), rows)

    def config(self) -> NotebookTable:
        """The configuration in force, secrets masked."""
        from grete.config.redact import redact

        with open_job(self.id) as handle:
            config = redact(handle.config())
        return NotebookTable(
            ("key", "value"), [{"key": key, "value": value} for key, value in sorted(config.items())]
        )

    def stream(self, name: str, *, last: int = 100) -> NotebookTable:
        """The last records of each partition of a stream, `system.stream`: JSON decoded, other text as it is."""
        stream = SystemStream.parse(name)
        rows = []
        with open_job(self.id) as handle, handle.system(stream.system) as system:
            for partition, offsets in sorted(system.offsets(stream.stream).items()):
                oldest = oldest_offset(system, stream.stream, partition)
                start = max(oldest, int(offsets.upcoming) - last)
                for one in read_records(system, stream.stream, partition, start):
                    row = {"partition": partition, "offset": one.offset, "time": _when(one.timestamp_ms)}
                    rows.append(row | {"key": decoded(one.key), "value": decoded(one.value)})
        return NotebookTable(("partition", "offset", "time", "key", "value"), rows)

    def store(self, name: str, *, task: str | None = None) -> NotebookTable:
        """What a StreamTask's store has at the last commits, of one task or of all, as its serdes read it."""
        with open_job(self.id) as handle:
            found = list(store_entries(handle, name, lambda key: True, task=task))
        rows = [
            {"task": one.task, "key": one.key, "value": one.value, "time": _when(one.timestamp_ms)}
            for one in found
        ]
        return NotebookTable(("task", "key", "value", "time"), rows)

    def dead_letters(self, *, last: int = 100) -> NotebookTable:
        """The last messages of each partition that were set aside, and why."""
        with open_job(self.id) as handle, open_dead_letters(handle) as letters:
            rows = [
                {
                    "number": one.number,
                    "task": one.task,
                    "from": f"{one.ssp} offset {one.offset}",
                    "error": one.error,
                    "key": decoded(one.key),
                    "value": decoded(one.value),
                    "replayed": one.is_replayed,
                }
                for one in letters.last(last)
            ]
        return NotebookTable(("number", "task", "from", "error", "key", "value", "replayed"), rows)

    def watch(self, seconds: float = 60.0, *, every_s: float = 2.0, until_behind: int | None = None) -> None:
        """Show how far behind the job is, again and again in one place.

        Ends when the job does, when so many records or fewer are left, or when the time is over.
        """
        deadline = Deadline(SystemClock(), seconds, pauses_s=(every_s, every_s))
        show = _shown_in_one_place()
        while True:
            with open_job(self.id) as handle:
                row, found = standing_row(handle), handle.lag()
            behind = found.total
            lag = sorted((one for one in _by_partition(found) if one["lag"]), key=lambda one: -one["lag"])[
                :10
            ]
            head = {"task": f"{row['job']}: {row['state']}", "lag": behind}
            show(NotebookTable(("task", "partition", "lag"), [head, *lag]))
            is_there = behind is not None and until_behind is not None and behind <= until_behind
            if is_there or row["run_by"] is None or not deadline.pause():
                return

    def stop(self, reason: str = "stopped from a notebook", *, within_s: float = _STOP_S) -> str:
        """Ask the job to stop at a batch boundary and wait until it has; returns its state.

        Raises:
            JobError: it is not running, or still runs some time after `within_s`.
        """
        with open_job(self.id) as handle:
            handle.requests.stop(within_s, reason)
            grace_s = within_s + max(5.0, 1.5 * handle.election.lease_s)
            deadline = Deadline(SystemClock(), grace_s, pauses_s=(0.1, 0.5))
            while handle.election.holder() is not None:
                if not deadline.pause():
                    raise JobError(
                        f"job {self.id.shown} still runs; look into {handle.state_directory / 'logs'}"
                    )
        return self.state


def _by_partition(lag: JobLag) -> NotebookTable:
    rows = lag.document()["partitions"]
    shown = [row | {"partition": f"{row['system']}.{row['stream']}.{row['partition']}"} for row in rows]
    return NotebookTable(("task", "partition", "checkpointed", "upcoming", "lag"), shown)


def jobs() -> NotebookTable:
    """Every job of this home."""
    rows = []
    for one in known_jobs(grete_home()):
        try:
            rows.append(NotebookJob(one)._row())
        except GreteError as error:
            state = "never ran" if isinstance(error, JobNotFound) else "unreachable"
            rows.append(empty_row(one, state, str(error)))
    return NotebookTable(("job", "state", "tasks", "run_by", "message"), rows)


def job(name: str) -> NotebookJob:
    """The job of that name, or `name:id`.

    Raises:
        JobNotFound: there is none here; says what may have been meant.
    """
    found = NotebookJob(JobId.parse(name))
    with open_job(found.id):
        return found


def submit(config: str, **changes: str) -> NotebookJob:
    """Run the job of a configuration file in processes of its own, as `grete run` does; returns when it runs.

    `changes` are keys of the configuration, written with `__` for each dot. What the job says is in `notebook.log`,
    in its folder.

    Raises:
        ConfigError: it is no valid configuration.
        JobError: the job has ended before it ran, with what it said last.
    """
    overrides = {name.replace("__", "."): value for name, value in changes.items()}
    settings = Settings.of(load([config], overrides))
    submitted = NotebookJob(settings.job.id)
    folder = settings.job.state_directory(submitted.id, grete_home())
    folder.mkdir(parents=True, exist_ok=True)
    words = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "grete.cli.main", "run", "--quiet", "--config", config, *words]
    output = folder / "notebook.log"
    with output.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - grete itself, no shell
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    deadline = Deadline(SystemClock(), _START_S, pauses_s=(0.1, 0.5))
    while process.poll() is None and not submitted._is_run_by(process.pid) and deadline.pause():
        pass
    if process.returncode:
        last = output.read_text("utf-8", "replace").strip().splitlines()[-20:]
        raise (ConfigError if process.returncode == _WRONG else JobError)("\n".join(last))
    return submitted


def _when(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def _shown_in_one_place() -> Callable[[NotebookTable], None]:
    """Where a notebook draws each table in the place of the one before; elsewhere they are printed."""
    try:
        from IPython.display import display  # type: ignore[import-not-found] # of the notebook's own kernel
    except ImportError:
        return print
    handle = display(NotebookTable((), ()), display_id=True)
    return print if handle is None else handle.update
