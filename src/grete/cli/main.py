"""The command line. Subcommands are imported when they are used, so that `--help` stays quick."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from grete.errors import ConfigError, GreteError, bullet_list

Run = Callable[[argparse.Namespace], int]

_COMMANDS = (
    ("run", "submit a job and run it in the foreground"),
    ("status", "what runs, where, how far"),
    ("stop", "stop a running job at a batch boundary"),
    ("config", "read and change a job's configuration"),
    ("job-model", "containers, tasks and their inputs"),
    ("checkpoint", "how far each task has come"),
    ("stream", "create, append to, dump, tail and write streams"),
    ("history", "deployments, attempts, exits, changes"),
    ("doctor", "check this machine"),
)


def _parser(command: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grete",
        description="Coordinated PySpark streaming jobs: configuration, job model, checkpoints, state.",
    )
    parser.add_argument("--home", help="where all state is kept (default: $GRETE_HOME, else .grete)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in _COMMANDS:
        if name == command:
            module = importlib.import_module(f"grete.cli.{name.replace('-', '_')}_command")
            module.declare(commands.add_parser(name, help=summary, description=summary))
        else:
            commands.add_parser(name, help=summary, add_help=False)
    return parser


def _wanted(arguments: Sequence[str]) -> str | None:
    names = {name for name, _ in _COMMANDS}
    return next((argument for argument in arguments if argument in names), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Errors of ours are one message, not a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(_wanted(given)).parse_args(given)
    if options.home:
        os.environ["GRETE_HOME"] = options.home
    try:
        run: Run = options.run
        return run(options)
    except ConfigError as error:
        head = "the configuration is wrong:\n" if len(error.problems) > 1 else ""
        text = bullet_list(error.problems) if len(error.problems) > 1 else str(error)
        return _fail(f"{head}{text}", error, options.debug)
    except GreteError as error:
        return _fail(str(error), error, options.debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: not an error
        return 0
    except KeyboardInterrupt:
        return 130


def _fail(message: str, error: GreteError, debug: bool) -> int:
    if debug or os.environ.get("GRETE_DEBUG") == "1":
        traceback.print_exc()
    print(f"grete: {message}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
