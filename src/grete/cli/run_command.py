"""`grete run`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grete.cli.dry_run import show_dry_run
from grete.cli.options import add_job_options
from grete.cli.progress import ProgressLine
from grete.config.log_levels import log_levels, set_levels
from grete.environment import APPLICATION_LIB
from grete.errors import ConfigError
from grete.suggestions import did_you_mean
from grete.text_logs import log_to_stderr, printable

if TYPE_CHECKING:
    from grete.coordinator.health import JobHealth
    from grete.coordinator.view import View
    from grete.wire.container_protocol import Heartbeat

_EVERY_S = 0.5
_QUIET_UNTIL = 3
"""Restarts: a failure that two of them have not mended is worth a line."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
    parser.add_argument("--until-drained", action="store_true", help="end when what is there is consumed")
    several = parser.add_mutually_exclusive_group()
    several.add_argument("--take-over", action="store_true", help="fence a holder that hangs")
    several.add_argument(
        "--standby", action="store_true", help="while another coordinator leads, wait to go on for it"
    )
    parser.add_argument(
        "--dev", action="store_true", help="one copy of each topic where nothing says how many"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would run, with Spark's plan of a pipeline; nothing is started or written",
    )
    parser.add_argument("--reason", default="", help="recorded in the history")
    parser.add_argument(
        "--quiet", action="store_true", help="no progress: warnings, errors, and a line at the third restart"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the job in the foreground until it ends."""
    log_to_stderr(log_level(debug=options.debug))
    if not options.debug:
        set_levels(log_levels(os.environ.get(APPLICATION_LIB)))
    from grete.assembly import RunOptions, run_job
    from grete.config.load import parse_overrides
    from grete.coordinator.metadata_manager import STARTS

    if not options.quiet:
        logging.getLogger(STARTS).setLevel(logging.INFO)
    run_options = RunOptions(
        config_paths=options.config,
        overrides=parse_overrides(options.set),
        job=options.job,
        until_drained=options.until_drained,
        take_over=options.take_over,
        stands_by=options.standby,
        reason=options.reason,
        dev=options.dev,
    )
    if options.dry_run:
        return show_dry_run(run_options, options.output)
    with _watcher(quiet=options.quiet) as on_view:
        return run_job(run_options, on_view)


def log_level(*, debug: bool) -> str:
    """GRETE_LOG_LEVEL, as for containers; without it WARNING, and INFO with `--debug`.

    Raises:
        ConfigError: no such level.
    """
    level = os.environ.get("GRETE_LOG_LEVEL", "INFO" if debug else "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        known = sorted(logging.getLevelNamesMapping())
        raise ConfigError(
            f"GRETE_LOG_LEVEL={level!r} is no level{did_you_mean(level, known)}; known are {', '.join(known)}"
        )
    return level


@contextmanager
def _watcher(*, quiet: bool) -> Iterator[Callable[[View], None]]:
    """A callback for `run_job`: starts a thread that shows progress on standard error until the end."""
    done = threading.Event()
    threads: list[threading.Thread] = []

    def on_view(view: View) -> None:
        thread = threading.Thread(target=_watch, args=(view, done, quiet), name="progress", daemon=True)
        thread.start()
        threads.append(thread)

    try:
        yield on_view
    finally:
        done.set()
        for thread in threads:
            thread.join(timeout=2)


def _watch(view: View, done: threading.Event, quiet: bool) -> None:
    progress, restarts = ProgressLine(sys.stderr), Restarts(said_at=_QUIET_UNTIL if quiet else 1)
    while not done.wait(_EVERY_S):
        if said := restarts.new(view.standing()):
            progress.stay(f"{view.job().job.shown}: {said}")
        if not quiet:
            progress.show(_line(view))
    if not quiet:
        progress.end(_line(view))


class Restarts:
    """What is to be said of restarts: with `said_at` 1 each of them, else that one of a row of them, once."""

    def __init__(self, said_at: int) -> None:
        self._said_at = said_at
        self._failures = 0

    def new(self, stands: JobHealth) -> str:
        """The standing's message, the first time that it is of a restart that is to be said; else nothing."""
        before, self._failures = self._failures, stands.failures
        if self._said_at == 1:
            return printable(stands.message) if stands.failures > before else ""
        return printable(stands.message) if before < self._said_at <= stands.failures else ""


def _line(view: View) -> str:
    job = view.job()
    containers = [_container(name, one.heartbeat) for name, one in sorted(view.containers.progress().items())]
    shown = [*containers, job.message] if job.message else containers
    return f"{job.job.shown}: {'; '.join(shown) or 'starting'}"


def _container(name: str, heartbeat: Heartbeat) -> str:
    if heartbeat.state == "starting":
        return f"container {name} starting Spark"
    return f"container {name} {heartbeat.state}, batch {heartbeat.batch_id}, {heartbeat.records:,} records"
