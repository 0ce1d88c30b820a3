"""The command line. A subcommand's module is imported when it is used, so that `--help` stays quick.

Exit codes are stable: 0 done, 1 failed, 2 wrong usage or configuration, 3 a message could not be processed, 4 the job
runs elsewhere, 5 this process was succeeded by another, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from grete.cli.samza_scripts import in_our_words
from grete.errors import ConfigError, GreteError, MissingExtra, bullet_list
from grete.suggestions import did_you_mean
from grete.text_logs import printable

Run = Callable[[argparse.Namespace], int]

COMMANDS = {
    "init": "write a small project: a job, its configuration, a test",
    "dev": "run this folder's job while it is being written",
    "run": "submit a job and run it in the foreground",
    "deploy": "let a cluster manager run a job: plan, apply, status, kill",
    "status": "what runs, where, how far",
    "ui": "pages of all jobs, for a browser",
    "top": "all jobs on one screen, live",
    "stop": "stop a running job at a batch boundary",
    "drain": "let a running job consume what is there, and end",
    "leader": "who coordinates a job, and who stands by; let another one",
    "container": "list, stop, start, restart and move the containers of a job",
    "config": "read and change a job's configuration",
    "autosize": "what the rule for the number of containers would have done",
    "job-model": "containers, tasks and their inputs",
    "checkpoint": "how far each task has come; rewind it",
    "startpoint": "where a task or input starts next",
    "stream": "create, append to, dump, tail and write streams",
    "store": "what the stores of a job's tasks have at their last commits",
    "logs": "what the containers of a job log",
    "dead-letters": "messages that could not be processed: list them, send them again",
    "job": "delete a job; run a second version beside it, and swap them",
    "history": "deployments, attempts, exits, changes",
    "metrics": "alert rules for Prometheus and a board for Grafana, made from a job's metrics",
    "completion": "a script that completes grete's words in a shell",
    "doctor": "check this machine, and a job's configuration",
    "package": "environments of the API, framework and application: build, verify, show",
    "migrate": "say what of a Samza job carries over; go on from a query of Spark's",
}
EXIT_INTERRUPTED = 130
_MOST_NAMED = 9
_OF_SPARK = ("pandas", "py4j", "pyspark")
"""Modules that come with the extra `spark`."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments in characters that a terminal only shows, and what may have been meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See ArgumentParser; what a command does not know nobody knows, and only the command has its options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
            meant = did_you_mean(option, self._option_string_actions) if option else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """See ArgumentParser, which lists all choices."""
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        is_command = isinstance(action, argparse._SubParsersAction)
        others = (
            f"; {self.prog} --help lists them"
            if len(known) > _MOST_NAMED
            else f"; there are {', '.join(known)}"
        )
        told = did_you_mean(str(value), known) or others
        what = f"there is no command {value!r}" if is_command else f"it cannot be {value!r}"
        raise argparse.ArgumentError(None if is_command else action, f"{what}{told}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.format_usage()}{self.prog}: error: {printable(message)}\n")


def parser_of(command: str | None) -> argparse.ArgumentParser:
    """The parser of the whole command line, in which this command alone has its arguments."""
    return _parser(lambda name: name == command)


def whole_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line with all arguments; it imports the module of every command."""
    return _parser(lambda name: True)


def _parser(has_arguments: Callable[[str], bool]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="grete",
        description="Coordinated PySpark streaming jobs: configuration, job model, checkpoints, state.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 a message could not be "
        "processed, 4 the job runs elsewhere, 5 succeeded by another process, 130 interrupted.",
    )
    parser.add_argument("--home", help="where all state is kept (default: $GRETE_HOME, else .grete)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks (as GRETE_DEBUG=1 does)")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if has_arguments(name):
            module = importlib.import_module(f"grete.cli.{name.replace('-', '_')}_command")
            module.declare(commands.add_parser(name, help=summary, description=summary.capitalize() + "."))
        else:
            commands.add_parser(name, help=summary, add_help=False)
    return parser


def _wanted(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if argument in COMMANDS), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Errors of ours and of the machine are one message, no traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        given = in_our_words(given)
    except ConfigError as error:
        return _fail(str(error), error.exit_code, debug=False)
    parser = parser_of(_wanted(given))
    options = parser.parse_args(given)
    if options.version:
        return _print_version()
    if options.command is None:
        parser.error("name a command; grete --help lists them")
    if options.home:
        os.environ["GRETE_HOME"] = options.home
    debug = options.debug or os.environ.get("GRETE_DEBUG") == "1"
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # what a command has done must not fail to be shown
    try:
        run: Run = options.run
        code = run(options)
        sys.stdout.flush()
        return code
    except GreteError as error:
        return _fail(_message(error), error.exit_code, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: not an error
        return 0
    except OSError as error:
        return _fail(str(error), 1, debug)
    except (ModuleNotFoundError, UnicodeEncodeError) as error:
        if (known := _known(error)) is None:
            raise
        return _fail(str(known), known.exit_code, debug)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _known(error: ModuleNotFoundError | UnicodeEncodeError) -> GreteError | None:
    """What of these is the user's to mend; None for a mistake of ours."""
    if isinstance(error, ModuleNotFoundError):
        module = str(error.name).partition(".")[0]
        return MissingExtra(module, "spark") if module in _OF_SPARK else None
    if any("\ud800" <= character <= "\udfff" for character in error.object):
        return ConfigError(f"{error.object!a:.200} has bytes that are no UTF-8")
    return None


def _message(error: GreteError) -> str:
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        return f"the configuration is wrong:\n{bullet_list(error.problems)}"
    return str(error)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    lines = f"grete: {message}".splitlines() or ["grete:"]
    print("\n".join(map(printable, lines)), file=sys.stderr)
    return code


def _print_version() -> int:
    from grete import __version__

    print(f"grete {__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
