"""`grete stream quarantine`."""

from __future__ import annotations

import argparse

from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json, print_table
from grete.errors import ConfigError


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--remove", type=_offset, nargs="+", default=[], metavar="OFFSET", help="delete these")
    which.add_argument("--remove-all", action="store_true", help="delete all of them")
    parser.add_argument("--execute", action="store_true", help="do it; without this nothing is changed")
    parser.add_argument("--reason", default="", help="recorded in the history")
    add_job_options(parser)
    parser.set_defaults(run=run)


def _offset(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise argparse.ArgumentTypeError(f"write an offset that the list shows, got {text[:100]!r}")


def run(options: argparse.Namespace) -> int:
    """List the records of a job's coordinator stream that are not understood, or delete some.

    Raises:
        ConfigError: an offset is not one of theirs.
    """
    with opened_job(options) as handle:
        found = handle.quarantined()
        chosen = {one.offset for one in found} if options.remove_all else set(options.remove)
        unknown = sorted(chosen - {one.offset for one in found})
        if unknown:
            raise ConfigError(f"no record that is set aside has offset {', '.join(map(str, unknown))}")
        if chosen and options.execute:
            handle.remove_quarantined(sorted(chosen), reason=options.reason)
    rows = [one for one in found if not chosen or one.offset in chosen]
    if options.output == "json":
        print_json([{"offset": one.offset, "reason": one.reason} for one in rows])
        return 0
    print_table(("offset", "reason"), [(str(one.offset), one.reason) for one in rows])
    if chosen:
        print(f"{len(rows)} removed" if options.execute else "nothing was changed; --execute removes them")
    return 0
