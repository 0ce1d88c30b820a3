"""Which embedded system and stream a `grete stream` command means, and reading it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from grete.cli.options import argument, count, given_settings
from grete.errors import StreamNotFound
from grete.model.ids import SystemStream
from grete.model.streams import MOST_PARTITIONS, check_name
from grete.suggestions import did_you_mean

if TYPE_CHECKING:
    from grete.config.settings import Settings
    from grete.systems.base import System

EMBEDDED = "local"


@contextmanager
def opened_system(
    options: argparse.Namespace, system: str = EMBEDDED, *, must_exist: bool = True
) -> Iterator[System]:
    """The system of that name: of the job that the options name, else the home's embedded one.

    Raises:
        StreamNotFound: nothing was ever stored there.
    """
    from grete.clock import SystemClock
    from grete.environment import grete_home
    from grete.systems.factory import open_system
    from grete.systems.local.system import FILE_NAME

    settings = options_settings(options)
    if system != EMBEDDED and system not in settings.system_names:
        meant = did_you_mean(system, (EMBEDDED, *settings.system_names))
        raise StreamNotFound(
            f"the system {system!r} is not known{meant}; the embedded one is called {EMBEDDED!r}, others are "
            f"found in a job's configuration: name it with --config or --job"
        )
    if settings.system(system).is_embedded:
        directory = settings.system(system).directory(grete_home())
        if must_exist and not (directory / FILE_NAME).exists():
            raise StreamNotFound(f"there are no streams in {directory}; create one with: grete stream create")
    with closing(open_system(settings, system, grete_home(), SystemClock())) as opened:
        yield opened


def options_settings(options: argparse.Namespace) -> Settings:
    """The settings that the options name, empty when they name none."""
    from grete.config.settings import Settings
    from grete.operations import open_job

    settings = given_settings(options)
    if settings is not None or not options.job:
        return settings or Settings()
    with open_job(options.job) as handle:
        return handle.settings


stream_name = argument(SystemStream.parse)
"""The type of an argument that names a stream, `system.stream`."""


@argument
def new_stream_name(text: str) -> SystemStream:
    """The type of an argument that names a stream to be created."""
    name = SystemStream.parse(text)
    check_name(name.stream)
    return name


def partition_count(text: str) -> int:
    """The type of an argument that says how many partitions a stream shall have."""
    return count(text, MOST_PARTITIONS)
