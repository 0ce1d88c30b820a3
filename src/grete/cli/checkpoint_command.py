"""`grete checkpoint show|history|diff|export|overwrite`: Samza's checkpoint tool, and what it could not do."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grete.checkpoint.task_commit import TaskCommit
from grete.checkpoint.text import Checkpoints, format_checkpoints, parse_checkpoint_text
from grete.cli import checkpoint_rewind
from grete.cli.options import (
    add_job_options,
    count,
    given_settings,
    opened_file,
    opened_job,
    say_that_spark_is_asked,
    warn,
)
from grete.cli.output import print_json, print_table
from grete.cli.rewind_options import add_write_options, is_live, say_whether_written
from grete.errors import ConfigError, JobError, JobNotFound, MissingExtra
from grete.migration.note import Outcome
from grete.model.ids import TaskName
from grete.text_logs import printable, utc_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from grete.migration.take_over import TakeOver
    from grete.operations import JobHandle
    from grete.operations.checkpoint_overwrite import OffsetChange

    ForeignOffsets = Mapping[TaskName, Mapping[str, str] | None]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show", help="last processed offsets, as Samza's checkpoint tool prints them")
    history = actions.add_parser("history", help="the commits that the checkpoint log still knows")
    diff = actions.add_parser("diff", help="what overwriting with a file would change")
    export = actions.add_parser("export", help="last processed offsets into a file that overwrite reads")
    overwrite = actions.add_parser(
        "overwrite", help="write the offsets of a file; a dry run without --execute"
    )
    rewind = actions.add_parser("rewind", help="start elsewhere; a dry run without --execute")
    commands = (
        (show, _show),
        (history, _history),
        (diff, _diff),
        (export, _export),
        (overwrite, _overwrite),
        (rewind, checkpoint_rewind.run),
    )
    for sub, run in commands:
        add_job_options(sub)
        sub.set_defaults(run=run)
    history.add_argument("-n", type=count, default=None, metavar="ROWS", help="only the last rows")
    for sub in (show, history, export, rewind):
        sub.add_argument("--task", action="append", default=[], help="only this task; may be repeated")
    export.add_argument("--to", metavar="FILE", help="by default the standard output")
    for sub in (diff, overwrite):
        sub.add_argument("file", nargs="?", metavar="FILE", help="properties, as export writes them")
        sub.add_argument("--new-offsets", metavar="FILE", help="the same, as in Samza's checkpoint-tool.sh")
        sub.add_argument(
            "--replace", action="store_true", help="drop what the file does not name of its tasks"
        )
    add_write_options(overwrite)
    checkpoint_rewind.declare(rewind)


def _chosen(options: argparse.Namespace, task: str) -> bool:
    return not options.task or task in options.task


def _show(options: argparse.Namespace) -> int:
    """Show every task's checkpoint: offsets as properties, or JSON with lineage, batch and store positions.

    Offsets that only Spark has are comments among the properties; in JSON null where they are not known here.
    """
    commits, foreign = _checkpoints(options, with_foreign=True)
    if options.output == "json":
        print_json(
            {
                task: {
                    "offsets": {str(ssp): offset for ssp, offset in sorted(commit.offsets.items())},
                    "lineage": commit.lineage,
                    "batch_id": commit.batch_id,
                    "store_positions": dict(commit.store_positions),
                    "foreign_offsets": foreign.get(task, {}),
                }
                for task, commit in sorted(commits.items())
            }
        )
        return 0
    for line in format_checkpoints({task: commit.offsets for task, commit in commits.items()}):
        print(line)
    for task in sorted(commits):
        for number, end in (foreign.get(task) or {}).items():
            print(f"# {printable(task)}: Spark's own source {number} of the plan ended at {printable(end)}")
    return 0


def _checkpoints(
    options: argparse.Namespace, *, with_foreign: bool = False
) -> tuple[Mapping[TaskName, TaskCommit], ForeignOffsets]:
    """The checkpoints with which the next start begins, also of a Samza job that has not run under grete yet.

    Of the tasks that the options name, and where it is asked for with what `_foreign` finds.

    Raises:
        JobError: there is no such job, and none whose checkpoints a first run would take over.
    """
    try:
        with opened_job(options) as handle:
            known = handle.checkpoints.read()
            _check_tasks(options, handle, known)
            commits = {task: c for task, c in known.items() if _chosen(options, task)}
            return commits, _foreign(handle, commits) if with_foreign else {}
    except JobNotFound as error:
        found = _before_the_first_run(options)
        if found is None or not found.sources:
            raise
        warn(f"{error}. A first run goes on from what is in {' and '.join(found.sources)}")
        for note in found.notes:
            if note.outcome is Outcome.BLOCKS:
                warn(f"{note.key}: {note.says}; {note.way_out}")
        tasks = [task for task in found.tasks if task.checkpoint and _chosen(options, task.task)]
        return {task.task: TaskCommit(task.checkpoint) for task in tasks}, {}


def _check_tasks(options: argparse.Namespace, handle: JobHandle, known: Collection[TaskName]) -> None:
    from grete.operations.job_handle import no_such_task

    if not options.task:
        return
    tasks = {*known, *handle.assignments()}
    for task in options.task:
        if task not in tasks:
            raise no_such_task(handle.job, task, tasks)


def _foreign(handle: JobHandle, commits: Mapping[TaskName, TaskCommit]) -> ForeignOffsets:
    """The offsets that Spark alone has (`foreign_of_tasks`); None where there are such and they are not known here.

    That is said. Checkpoints are shown all the same: they may be needed because a file system is away.

    Raises:
        SparkLogUnreadable: Spark's offset log is damaged.
    """
    job = handle.settings.job
    if not job.is_pipeline:
        return {}
    from grete.operations.foreign_sources import foreign_of_tasks  # of the engine's room

    place = job.lineage_place(handle.job, handle.home)
    found: Mapping[TaskName, Mapping[str, str]] = {}
    reason = f"{place} has no such lineage" + ("" if isinstance(place, str) else " on this machine")
    try:
        found = foreign_of_tasks(handle, commits, say_that_spark_is_asked)
    except (ConfigError, JobError, MissingExtra) as error:
        reason = str(error)
    lacking = [task for task, commit in commits.items() if commit.has_foreign_sources and task not in found]
    if lacking:
        warn(
            f"offsets of Spark's own sources, which its lineage alone has, are not shown of {len(lacking)} tasks: "
            f"{reason}"
        )
    return {**dict.fromkeys(lacking), **found}


def _before_the_first_run(options: argparse.Namespace) -> TakeOver | None:
    from grete.clock import SystemClock
    from grete.config.derived import canonical_keys
    from grete.config.rewriters import apply_rewriters
    from grete.config.settings import Settings
    from grete.environment import grete_home
    from grete.migration.take_over import take_over

    given = given_settings(options)
    if given is None:
        return None
    settings = Settings.of(canonical_keys(apply_rewriters(given.raw)))
    if not settings.system(settings.coordinator.system).capabilities.kafka_topics:
        return None
    return take_over(settings.raw, grete_home(), SystemClock())


def _history(options: argparse.Namespace) -> int:
    """Show every commit that can be rewound to with `--to batch:`, the oldest first."""
    with opened_job(options) as handle:
        history = handle.checkpoints.history()
    known = [(task, one) for task, commits in history.items() for one in commits if _chosen(options, task)]
    rows: list[dict[str, Any]] = [
        {
            "timestamp_ms": one.timestamp_ms,
            "lineage": one.commit.lineage,
            "batch_id": one.commit.batch_id,
            "task": task,
            "offsets": {str(ssp): offset for ssp, offset in sorted(one.commit.offsets.items())},
        }
        for task, one in sorted(known, key=lambda row: row[1].log_offset)
    ]
    if options.n is not None:
        rows = rows[-options.n :]
    if options.output == "json":
        print_json(rows)
        return 0
    print_table(
        ("when", "batch", "task", "last processed"),
        [
            (
                utc_text(row["timestamp_ms"]),
                f"{row['lineage'][:8]}/{row['batch_id']}" if row["lineage"] else "moved",
                row["task"],
                ", ".join(f"{ssp}: {offset}" for ssp, offset in row["offsets"].items()),
            )
            for row in rows
        ],
    )
    return 0


def _export(options: argparse.Namespace) -> int:
    known, _ = _checkpoints(options)
    offsets = {task: commit.offsets for task, commit in sorted(known.items())}
    lines = list(format_checkpoints(offsets))
    if options.to is not None:
        Path(options.to).write_text("".join(f"{line}\n" for line in lines))
    if options.output == "json":
        print_json(
            {task: {str(ssp): o for ssp, o in sorted(found.items())} for task, found in offsets.items()}
        )
    elif options.to is None:
        for line in lines:
            print(line)
    return 0


def _given_offsets(options: argparse.Namespace) -> Checkpoints:
    """The offsets of the file; lines that mean nothing are warned of, as Samza's tool does (S2-97)."""
    from grete.config.load import config_path

    name = options.file or options.new_offsets
    if name is None:
        raise ConfigError("name the file with the offsets, as grete checkpoint export writes it")
    path = config_path(name)
    with opened_file(str(path)) as file:
        data = file.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text; write it as grete checkpoint export does") from error
    found, unknown = parse_checkpoint_text(text, origin=str(path))
    for key in unknown:
        warn(f"{path}: ignoring unrecognised property: {key}")
    if not found:
        raise ConfigError(
            f"{path} names no offset: lines are "
            f"tasknames.TASK.systems.SYSTEM.streams.STREAM.partitions.PARTITION = OFFSET"
        )
    return found


def _diff(options: argparse.Namespace) -> int:
    from grete.operations.checkpoint_overwrite import compare

    new = _given_offsets(options)
    with opened_job(options) as handle:
        current = {task: commit.offsets for task, commit in handle.checkpoints.read().items()}
    changes = compare(current, new, replace=options.replace)
    if options.output == "json":
        print_json(_changes(changes))
    else:
        _print_changes(changes)
    return 0


def _changes(changes: Sequence[OffsetChange]) -> list[dict[str, Any]]:
    return [asdict(change) | {"ssp": str(change.ssp)} for change in changes]


def _print_changes(changes: Sequence[OffsetChange]) -> None:
    for change in changes:
        print(
            printable(
                f"{change.task}  {change.ssp}: {change.current or '(none)'} -> {change.new or '(none)'}"
            )
        )
    if not changes:
        print("nothing differs")


def _overwrite(options: argparse.Namespace) -> int:
    from grete.operations.checkpoint_overwrite import overwrite, plan_overwrite

    new = _given_offsets(options)
    with opened_job(options) as handle:
        changes = plan_overwrite(handle, new, replace=options.replace)
        if options.execute:
            live = is_live(handle, options)
            overwrite(handle, new, replace=options.replace, live=live, reason=options.reason)
            _warn_of_startpoints(handle, live=live)
    if options.output == "json":
        print_json({"executed": options.execute, "changes": _changes(changes)})
        return 0
    _print_changes(changes)
    say_whether_written(executed=options.execute)
    return 0


def _warn_of_startpoints(handle: JobHandle, *, live: bool) -> None:
    from grete.operations.startpoints import list_startpoints

    pending = [asked for asked in list_startpoints(handle) if asked.status in ("waiting", "handed over")]
    if pending and not live:
        warn(f"{len(pending)} startpoints wait to be applied and win: see grete startpoint show")
