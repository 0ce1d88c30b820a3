"""`grete dev`: runs the job of this folder while it is being written."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from grete.cli.options import argument, say_that_spark_is_asked
from grete.errors import ConfigError
from grete.text_logs import log_to_stderr

if TYPE_CHECKING:
    from grete.config.settings import Settings

_ENDINGS = (".properties", ".yaml", ".yml", ".toml")
_NO_JOBS = ("pyproject.toml", "log4j.properties", "log4j2.properties")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        type=argument(str),
        metavar="FILE",
        help="the job's configuration (default: the one file of this folder that is one); later ones win",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="begin without state, checkpoints and outputs; embedded jobs alone",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run until Ctrl-C; a mistake in the application or the configuration is shown, and waits for the next save."""
    log_to_stderr("ERROR")
    from grete.cli.development import Development
    from grete.config.load import parse_overrides

    paths = [Path(one) for one in options.config] or [job_file(Path())]
    overrides = parse_overrides(options.set)
    if options.fresh:
        _begin_afresh(paths, overrides)
    coordinator = logging.getLogger("grete.coordinator")
    before = coordinator.level
    coordinator.setLevel(logging.CRITICAL)  # what it would say is shown here
    try:
        return Development(paths, overrides, sys.stdout).run()
    finally:
        coordinator.setLevel(before)


def job_file(folder: Path) -> Path:
    """The only file of the folder that is a job's configuration.

    Raises:
        ConfigError: there is none, or there are several.
    """
    found = [path for path in sorted(folder.iterdir()) if path.suffix in _ENDINGS and _is_job(path)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found)
    what = f"several jobs' configurations: {names}" if found else "no job's configuration"
    raise ConfigError(f"{folder.resolve()} has {what}; name one with --config FILE, or begin with grete init")


def _is_job(path: Path) -> bool:
    """Whether the file names a job; one that cannot be read is for whoever names it."""
    from grete.config.load import load_file

    try:
        return path.name not in _NO_JOBS and bool({"job.name", "app.name"} & load_file(path).keys())
    except ConfigError:
        return False


def _begin_afresh(paths: Sequence[Path], overrides: Mapping[str, str]) -> None:
    """Delete what the job has, and what it has sent.

    Raises:
        ConfigError: it is not on embedded systems alone.
    """
    from grete.cli.development import settings_of
    from grete.clock import SystemClock
    from grete.environment import grete_home
    from grete.errors import JobNotFound, LogNotFound, StreamNotFound
    from grete.operations import open_job
    from grete.operations.deletion import delete_job
    from grete.systems.factory import open_system

    settings = settings_of(paths, overrides)
    elsewhere = [name for name in _systems(settings) if not settings.system(name).is_embedded]
    if elsewhere:
        raise ConfigError(
            f"--fresh deletes streams, and {', '.join(elsewhere)} is not embedded; "
            "use grete job delete, or another job.id"
        )
    try:
        with open_job(settings.job.id, settings) as handle:
            delete_job(handle, say_that_spark_is_asked)
    except (JobNotFound, LogNotFound):
        pass
    for stream in settings.task.outputs:
        with closing(open_system(settings, stream.system, grete_home(), SystemClock())) as system:
            try:
                system.delete_stream(stream.stream)
            except StreamNotFound:
                continue


def _systems(settings: Settings) -> list[str]:
    named = (*settings.task.all_inputs, *settings.task.outputs)
    return sorted({settings.coordinator.system, *(stream.system for stream in named)})
