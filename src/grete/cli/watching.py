"""`--watch`: a command's answer again and again, until it is interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import sleep

from grete.cli.options import seconds
from grete.clock import SystemClock
from grete.text_logs import utc_text

_EVERY_S = 2.0
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def add_watch_option(parser: argparse.ArgumentParser) -> None:
    """`--watch [SECONDS]`."""
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=_EVERY_S,
        metavar="SECONDS",
        help="show it again every so many seconds (default: 2) until it is interrupted",
    )


def watched(show: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The command with its option: on a terminal each answer takes the place of the one before."""

    def run(options: argparse.Namespace) -> int:
        if options.watch is None:
            return show(options)
        while True:
            if options.output != "json":
                print(f"{_CLEAR if sys.stdout.isatty() else ''}{utc_text(SystemClock().wall_ms())} UTC\n")
            show(options)
            if options.output != "json":
                print()
            sys.stdout.flush()
            sleep(max(0.1, options.watch))

    return run
