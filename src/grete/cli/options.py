"""Options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from grete.errors import ConfigError, GreteError
from grete.model.ids import JobId
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.config.settings import Settings
    from grete.operations import JobHandle

Value = TypeVar("Value")

_LONGEST_S = 86_400
_LOADER_PATH = "job.config.loader.properties.path="
_LOADER_FACTORY = "job.config.loader.factory="
_PROPERTIES_LOADER = "org.apache.samza.config.loaders.PropertiesConfigLoaderFactory"
_DIGITS = 12
_MOST = 10**_DIGITS - 1


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command, before or after its name."""
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="for people, or for programs"
    )
    parser.add_argument("--home", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


class _ConfigFile(argparse.Action):
    """Collects files, also as Samza's tools name them since 1.5: by the keys of its configuration loader."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Add the file that a value names; the loader that is the only one is taken as said."""
        text = str(values)
        if text.startswith(_LOADER_FACTORY):
            if text.removeprefix(_LOADER_FACTORY) != _PROPERTIES_LOADER:
                parser.error(f"{text}: files are loaded by {_PROPERTIES_LOADER} only; leave it out")
            return
        files = [*getattr(namespace, self.dest), text.removeprefix(_LOADER_PATH)]
        setattr(namespace, self.dest, files)


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """`--config` or `--job`, and what every command takes."""
    which = parser.add_mutually_exclusive_group()
    add_config_option(which)
    which.add_argument(
        "--job",
        type=argument(JobId.parse),
        metavar="NAME[:ID]",
        help="a job that ran before; its id is 1 by default",
    )
    add_common_options(parser)


def add_config_option(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    """`--config`."""
    parser.add_argument(
        "--config",
        "--config-path",
        dest="config",
        action=_ConfigFile,
        default=[],
        metavar="FILE",
        required=required,
        help="the job's configuration, a path or file:// URL; later ones win. As Samza's tools since 1.5 also "
        "job.config.loader.properties.path=FILE",
    )


def given_settings(
    options: argparse.Namespace, overrides: Mapping[str, str] = MappingProxyType({})
) -> Settings | None:
    """The settings in the files of `--config` with these overrides, and with those of a `--dev` that the command has;
    None without any file.

    Raises:
        ConfigError: a file cannot be read, or they name no job.
    """
    if not options.config:
        return None
    from grete.config.derived import dev_overrides
    from grete.config.load import load
    from grete.config.settings import Settings

    loaded = load(options.config, overrides)
    if getattr(options, "dev", False):
        loaded |= dev_overrides(loaded)
    settings = Settings.of(loaded)
    _ = settings.job.id
    return settings


def named_job(options: argparse.Namespace, settings: Settings | None) -> JobId:
    """The job that the options name; without any, the only one there is.

    Raises:
        ConfigError: none named and there is not exactly one.
    """
    from grete.environment import grete_home
    from grete.metadata.job_index import jobs

    if settings is not None:
        return settings.job.id
    if options.job:
        given: JobId = options.job
        return given
    known = jobs(grete_home())
    if len(known) != 1:
        names = ", ".join(job.shown for job in known) or "none"
        raise ConfigError(f"name the job with --job or --config; jobs in {grete_home()}: {names}")
    return known[0]


@contextmanager
def opened_job(options: argparse.Namespace) -> Iterator[JobHandle]:
    """The job that the options name, opened.

    Raises:
        ConfigError: see `named_job`.
        JobError: there is no such job.
    """
    from grete.operations import open_job

    settings = given_settings(options)
    with open_job(named_job(options, settings), settings) as handle:
        yield handle


def argument(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """The type of an argument that `parse` reads: what it refuses means nothing, whatever there is: wrong usage."""

    def value(text: str) -> Value:
        try:
            return parse(text)
        except GreteError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return value


@contextmanager
def opened_file(path: str) -> Iterator[BinaryIO]:
    """A file that an argument names, to be read.

    Raises:
        ConfigError: it is not there, or may not be read; as of a file of `--config`.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
        except (OSError, ValueError) as error:  # the latter of a name that holds a zero byte
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot read {path!r}: {reason}") from error
        yield file


def count(text: str, most: int = _MOST) -> int:
    """An option's value that is a whole number of one or more."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and 1 <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"write a whole number from 1 to {most}, got {text[:100]!r}")
    return int(text)


def seconds(text: str) -> float:
    """An option's value that is a number of whole seconds, at most a day."""
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) <= _LONGEST_S:
        return float(text)
    raise argparse.ArgumentTypeError(f"write whole seconds, at most {_LONGEST_S}, got {text!r}")


def say_that_spark_is_asked(address: str) -> None:
    """Something that takes longer than people expect of a command."""
    print(f"grete: asking Spark for {printable(address)}", file=sys.stderr)


def warn(message: str) -> None:
    """Something that people should know and that keeps nothing from being done."""
    print(f"grete: warning: {printable(message)}", file=sys.stderr)
