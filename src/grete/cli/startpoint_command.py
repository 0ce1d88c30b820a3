"""`grete startpoint set|show|delete`: Samza's startpoints, one by one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json, print_table
from grete.cli.rewind_options import add_write_options, is_live, ssp
from grete.errors import ConfigError, JobError
from grete.model.ids import TaskName
from grete.suggestions import or_one_of
from grete.text_logs import utc_text

if TYPE_CHECKING:
    from grete.model.ids import SystemStreamPartition
    from grete.operations import JobHandle


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    set_ = actions.add_parser("set", help="ask for a startpoint, of an SSP in every task or in one")
    show = actions.add_parser("show", help="what was asked for, and what became of it")
    delete = actions.add_parser("delete", help="take startpoints back that were not applied yet")
    for sub, run in ((set_, _set), (show, _show), (delete, _delete)):
        add_job_options(sub)
        sub.set_defaults(run=run)
    set_.add_argument("--ssp", required=True, metavar="SYSTEM.STREAM.PARTITION", help="which input")
    set_.add_argument("--task", help="only in this task")
    set_.add_argument(
        "--to", required=True, metavar="WHERE", help="oldest, upcoming, offset:N or timestamp:TIME"
    )
    add_write_options(set_, dry_run=False)
    delete.add_argument("--ssp", metavar="SYSTEM.STREAM.PARTITION", help="only of this input")
    delete.add_argument("--task", help="only in this task")
    delete.add_argument("--all", action="store_true", help="all of them")
    delete.add_argument("--reason", default="", help="recorded in the history")


def _set(options: argparse.Namespace) -> int:
    from grete.checkpoint.rewind_target import startpoint_target
    from grete.operations.startpoints import write_startpoints

    startpoint = startpoint_target(options.to)
    where = ssp(options.ssp), None if options.task is None else TaskName(options.task)
    with opened_job(options) as handle:
        tasks = _readers(handle, *where)
        live = is_live(handle, options)
        write_startpoints(
            handle,
            {where: startpoint},
            {},
            live=live,
            event="startpoint",
            ssp=str(where[0]),
            task=options.task or "",
            to=options.to,
            reason=options.reason,
        )
    if options.output == "json":
        print_json({"ssp": str(where[0]), "task": where[1], "to": str(startpoint), "tasks": tasks})
    else:
        print(f"{where[0]} starts at {startpoint} in {', '.join(tasks)}")
    return 0


def _readers(handle: JobHandle, ssp: SystemStreamPartition, task: TaskName | None) -> list[TaskName]:
    """The tasks that read an SSP, or of them the one that is named.

    Raises:
        JobError: there are none; says whether it is the task or the SSP that the job does not have.
    """
    from grete.operations.job_handle import no_such_task, not_read

    inputs = handle.task_inputs()
    if task is not None and task not in inputs:
        raise no_such_task(handle.job, task, inputs)
    readers = sorted(name for name in inputs if ssp in inputs[name])
    if not readers:
        known = {str(one) for of_task in inputs.values() for one in of_task}
        raise JobError(
            f"no task of job {handle.job.shown} reads {ssp}{or_one_of(str(ssp), known, 'they read')}"
        )
    if task is None:
        return readers
    if task not in readers:
        raise not_read(task, ssp, inputs[task])
    return [task]


def _show(options: argparse.Namespace) -> int:
    from grete.operations.startpoints import list_startpoints

    with opened_job(options) as handle:
        found = list_startpoints(handle)
    if options.output == "json":
        print_json(
            [
                {
                    "ssp": asked.ssp,
                    "task": asked.task,
                    "to": str(asked.startpoint),
                    "type": asked.startpoint.kind.value,
                    "created_ms": asked.startpoint.created_ms,
                    "expires_ms": asked.expires_ms,
                    "status": asked.status,
                }
                for asked in found
            ]
        )
    elif found:
        print_table(
            ("input", "task", "to", "created", "status"),
            [
                (
                    asked.ssp,
                    asked.task,
                    str(asked.startpoint),
                    utc_text(asked.startpoint.created_ms),
                    asked.status,
                )
                for asked in found
            ],
        )
    else:
        print("no startpoints")
    return 0


def _delete(options: argparse.Namespace) -> int:
    from grete.operations.startpoints import delete_startpoints

    if bool(options.ssp) == options.all or (options.task and options.all):
        raise ConfigError("say which: --ssp SYSTEM.STREAM.PARTITION, with --task TASK or without, or --all")
    where = None if options.all else (ssp(options.ssp), TaskName(options.task) if options.task else None)
    with opened_job(options) as handle:
        gone = delete_startpoints(handle, where, reason=options.reason)
    if options.output == "json":
        print_json({"deleted": gone})
    else:
        print(f"{gone} startpoints taken back")
    return 0
