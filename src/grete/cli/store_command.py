"""`grete store get|scan`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice

from grete.cli.options import add_job_options, count, opened_job, warn
from grete.cli.output import print_json_line
from grete.extras import require


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


def _get(options: argparse.Namespace) -> int:
    printed = _print(options, lambda text: text == options.key, None)
    if not printed:
        warn(f"store {options.store} has no entry of {options.key!r}")
    return 0 if printed else 1


def _scan(options: argparse.Namespace) -> int:
    _print(options, lambda text: text.startswith(options.prefix), options.limit)
    return 0


def _print(options: argparse.Namespace, wants: Callable[[str], bool], limit: int | None) -> int:
    require("arrow")
    from grete.operations.store_entries import store_entries

    printed = 0
    with opened_job(options) as handle:
        for entry in islice(store_entries(handle, options.store, wants, task=options.task), limit):
            print_json_line(entry._asdict())
            printed += 1
    return printed
