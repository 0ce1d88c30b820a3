"""Options of commands that change where a job starts, and how they show it."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from grete.errors import ConfigError, WireError
from grete.model.ids import SystemStream, SystemStreamPartition

if TYPE_CHECKING:
    from grete.operations import JobHandle


def add_write_options(parser: argparse.ArgumentParser, *, dry_run: bool = True) -> None:
    """`--live` and `--reason`; with `dry_run` also `--execute`."""
    if dry_run:
        parser.add_argument("--execute", action="store_true", help="do it; without, show what would be done")
    parser.add_argument("--live", action="store_true", help="also while the job runs, at its next batch")
    parser.add_argument("--reason", default="", help="recorded in the history")


def ssp(text: str) -> SystemStreamPartition:
    """`system.stream.partition` of an option.

    Raises:
        ConfigError: it is none.
    """
    try:
        return SystemStreamPartition.parse(text)
    except WireError as error:
        raise ConfigError(f"--ssp {text!r}: {error}") from error


def input_or_ssp(text: str) -> SystemStream | SystemStreamPartition:
    """`system.stream.partition` of an option, or `system.stream` for all partitions of an input.

    Raises:
        ConfigError: it is neither.
    """
    with contextlib.suppress(WireError):
        return SystemStreamPartition.parse(text)
    try:
        return SystemStream.parse(text)
    except WireError as error:
        raise ConfigError(f"--ssp {text!r}: {error}") from error


def is_live(handle: JobHandle, options: argparse.Namespace) -> bool:
    """Whether what is written is for a running job: `--live` on a stopped one is harmless."""
    return bool(options.live) and handle.election.holder() is not None


def say_whether_written(*, executed: bool) -> None:
    """Of a dry run, that it was one."""
    if not executed:
        print("nothing was written: this is what --execute would do")
