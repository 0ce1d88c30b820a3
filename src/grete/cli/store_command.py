"""`grete store get|scan|export|import`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from grete.cli.options import add_job_options, count, opened_job, warn
from grete.cli.output import print_json, print_json_line, print_table
from grete.cli.rewind_options import say_whether_written
from grete.extras import require

if TYPE_CHECKING:
    from grete.operations.store_entries import StoreEntry


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    get = actions.add_parser("get", help="what a store has of a key, at the last commit of its task")
    add_job_options(get)
    get.add_argument("store")
    get.add_argument("key", help="text as it is, other keys as JSON")
    get.add_argument("--task", help="only in the store of this task")
    get.set_defaults(run=_get)
    scan = actions.add_parser("scan", help="the entries of a store, an object a line")
    add_job_options(scan)
    scan.add_argument("store")
    scan.add_argument("--prefix", default="", help="only keys that begin so")
    scan.add_argument("--task", help="only in the store of this task")
    scan.add_argument("-n", "--limit", type=count, help="so many entries at most")
    scan.set_defaults(run=_scan)
    export = actions.add_parser("export", help="write what a store has at the last commits into a folder")
    add_job_options(export)
    export.add_argument("store")
    export.add_argument("--to", required=True, metavar="DIR", help="it does not exist, or is empty")
    export.set_defaults(run=_export)
    take = actions.add_parser(
        "import", help="let a store of a job that does not run have what was exported, and nothing else"
    )
    add_job_options(take)
    take.add_argument("store")
    take.add_argument("--from", dest="folder", required=True, metavar="DIR", help="where it was exported to")
    take.add_argument("--execute", action="store_true", help="do it; without, show what would be done")
    take.set_defaults(run=_import)


def _get(options: argparse.Namespace) -> int:
    require("arrow")
    from grete.operations.store_entries import entries_of_key

    with opened_job(options) as handle:
        printed = _print(entries_of_key(handle, options.store, options.key, task=options.task))
    if not printed:
        warn(f"store {options.store} has no entry of {options.key!r}")
    return 0 if printed else 1


def _scan(options: argparse.Namespace) -> int:
    require("arrow")
    from grete.operations.store_entries import store_entries

    with opened_job(options) as handle:
        wanted = store_entries(
            handle, options.store, lambda text: text.startswith(options.prefix), task=options.task
        )
        _print(islice(wanted, options.limit))
    return 0


def _print(entries: Iterable[StoreEntry]) -> int:
    printed = 0
    for entry in entries:
        print_json_line(entry._asdict())
        printed += 1
    return printed


def _export(options: argparse.Namespace) -> int:
    require("arrow")
    from grete.operations.store_transfer import export_store

    with opened_job(options) as handle:
        found = export_store(handle, options.store, Path(options.to))
    if options.output == "json":
        tasks = [{"task": one.task, "entries": one.entries} for one in found.tasks]
        print_json({"job": found.job, "store": found.store, "folder": options.to, "tasks": tasks})
    else:
        print_table(("task", "entries"), [(one.task, one.entries) for one in found.tasks])
    return 0


def _import(options: argparse.Namespace) -> int:
    require("arrow")
    from grete.operations.store_transfer import import_store

    with opened_job(options) as handle:
        job = handle.job.shown
        done = import_store(handle, options.store, Path(options.folder), execute=options.execute)
    if options.output == "json":
        tasks = [one._asdict() for one in done]
        print_json({"job": job, "store": options.store, "tasks": tasks, "executed": options.execute})
    else:
        print_table(("task", "entries", "deleted"), [tuple(one) for one in done])
        say_whether_written(executed=options.execute)
    return 0
