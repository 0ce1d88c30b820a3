"""A container that is an application of YARN: what its ApplicationMaster runs.

    application_master.py --config FILE --container FILE [--secrets FILE]

Its environment is in a file, since YARN writes variables into a shell script without quoting them.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from grete.config.load import load
from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.deploy.attempt import own_host, place_of, set_up, start_spark, variables_of
from grete.environment import HOME, HOST_NAME
from grete.errors import GreteError
from grete.exit_report import run_and_report
from grete.text_logs import log_to_stderr, printable


def main(arguments: Sequence[str]) -> int:
    """Run the container until its end, of which the process ends; returns only where it could not begin."""
    given = _parse(arguments)
    log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        set_up(given.secrets)
        os.environ.update(_told(given.container))
        place = place_of(Manager.YARN, os.environ, Path.cwd())
        start_spark(Settings.of(load([str(given.config)], place)))
    except GreteError as error:
        print(f"grete: {printable(str(error))}", file=sys.stderr, flush=True)
        return error.exit_code
    from grete.spark import container

    run_and_report(container.main)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="application_master.py")
    for name in ("--config", "--container"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--secrets", type=Path)
    return parser.parse_args(arguments)


def _told(path: Path) -> dict[str, str]:
    """The environment that the coordinator has told, but for what is of this machine."""
    told = variables_of(path, "what this container is told")
    return {**told, HOME: str(Path.cwd() / "home"), HOST_NAME: own_host()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
