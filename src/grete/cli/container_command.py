"""`grete container list|stop|start|restart|move`."""

from __future__ import annotations

import argparse

from grete.cli.options import add_job_options, opened_job, seconds
from grete.cli.output import print_json, print_table
from grete.cli.watching import add_watch_option, watched
from grete.config.choices import LauncherChoice
from grete.errors import JobError
from grete.model.ids import ContainerId


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    list_ = actions.add_parser("list", help="which containers there are, where they run, and their tasks")
    add_job_options(list_)
    add_watch_option(list_)
    list_.set_defaults(run=watched(_list))
    helps = {
        "stop": "end one at a batch boundary and keep it stopped; its tasks wait",
        "start": "start one that was stopped or given up",
        "restart": "end one at a batch boundary and start it again",
    }
    for what, text in helps.items():
        sub = actions.add_parser(what, help=text)
        _add_request_options(sub, what)
        sub.set_defaults(run=_request)
    move = actions.add_parser("move", help="end one at a batch boundary and start it on a host")
    _add_request_options(move, "move")
    move.add_argument("--to", required=True, metavar="HOST", help="where it shall run")
    move.set_defaults(run=_move)


def _add_request_options(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("container", metavar="ID", help="of the container, as `container list` shows it")
    parser.add_argument(
        "--deadline", type=seconds, default=30.0, metavar="S", help="seconds before it is killed"
    )
    parser.add_argument("--reason", default=f"grete container {what}", help="recorded in the history")
    add_job_options(parser)


def _list(options: argparse.Namespace) -> int:
    from grete.operations.container_status import container_rows

    with opened_job(options) as handle:
        rows = container_rows(handle)
    if options.output == "json":
        print_json(rows)
        return 0
    cells = [
        [
            *(row["container"], row["state"], row["host"], row["pid"] and str(row["pid"])),
            *(", ".join(row["tasks"]), row["message"]),
        ]
        for row in rows
    ]
    print_table(("container", "state", "host", "process", "tasks", "message"), cells, cut_last=True)
    return 0


def _request(options: argparse.Namespace, host: str = "") -> int:
    from grete.operations.orphans import end_orphans, orphans

    with opened_job(options) as handle:
        container = ContainerId(options.container)
        if options.action == "stop" and container in orphans(handle):
            end_orphans(handle, [container], options.deadline, options.reason)
            return _print_ended(options)
        id_ = handle.requests.container(
            ContainerId(options.container), options.action, options.deadline, options.reason, host
        )
    if options.output == "json":
        print_json({"container": options.container, "requested": options.action, "id": id_})
    else:
        print(
            f"container {options.container}: {options.action} requested; `grete history` shows when it is done"
        )
    return 0


def _print_ended(options: argparse.Namespace) -> int:
    if options.output == "json":
        print_json({"container": options.container, "requested": "stop", "id": None})
    else:
        print(f"container {options.container}: fenced off and ended; no coordinator runs the job")
    return 0


def _move(options: argparse.Namespace) -> int:
    """Pods go anywhere. Other containers are where the coordinator runs, and nowhere else (S1-19)."""
    with opened_job(options) as handle:
        if handle.settings.job.launcher == LauncherChoice.YARN:
            raise JobError(
                f"YARN chooses the hosts of containers, and Spark cannot ask it for {options.to}; "
                f"`grete container restart {options.container}` starts it wherever there is room"
            )
        holder, is_pod = handle.election.holder(), handle.settings.job.launcher == LauncherChoice.KUBERNETES
        if holder is not None and not is_pod and options.to != holder.host:
            launcher = handle.settings.job.launcher
            raise JobError(
                f"job.launcher={launcher} starts containers on {holder.host} only, where the coordinator runs; stop "
                f"the job and run it on {options.to}, or name {holder.host}, which restarts the container there"
            )
    options.action = "restart"
    return _request(options, options.to if is_pod else "")
