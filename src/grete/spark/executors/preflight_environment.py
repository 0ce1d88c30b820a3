"""The application's own environment as executors find it: there, whole, and of the driver's Python.

Looked at after `preflight` has seen that executors have the driver's grete, and where the application has a process
of its own. An environment that is brought is unpacked by this look, before the first share waits for it; one that was
damaged since is unpacked again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grete.application.beside import interpreter
from grete.config.key_tables.job import APPLICATION_ENVIRONMENT
from grete.errors import GreteError
from grete.packages.interpreter import Interpreter, find_interpreter
from grete.spark.executors.shipping import Shipped


def environment_there(shipped: Shipped, named: str) -> dict[str, Any]:
    """In a worker: its host and folder, what is wrong with the environment, else the Python and platform it is of.

    And the damage that was mended for that.
    """
    said = {"host": socket.gethostname(), "place": os.getcwd(), "problem": "", "runs": "", "mended": ""}
    try:
        with _warnings() as mended:
            environment = shipped.environment_here() or named
        said["mended"] = "; ".join(mended)
        said["runs"] = _described(find_interpreter(Path(interpreter(environment))))
    except GreteError as error:
        said["problem"] = str(error)
    return said


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What is logged within the block as a warning: the log of an executor is on its machine."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("grete")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


class EnvironmentHere:
    """The driver's side: the environment with which the application was checked."""

    def __init__(self, named: str) -> None:
        """`named` is what `job.application.environment` says.

        Raises:
            ConfigError, PackageError: it has no interpreter that can be run.
        """
        self._runs = _described(find_interpreter(Path(interpreter(named))))

    def problem(self, said: dict[str, Any]) -> str:
        """What is wrong on an executor that says this, with the way out; empty where nothing is."""
        if said["problem"]:
            return f"cannot run the application: {said['problem']}"
        if said["runs"] != self._runs:
            return (
                f"would run the application in {said['runs']}, and the driver has checked it in {self._runs}: let "
                f"{APPLICATION_ENVIRONMENT.name} name the same environment on every machine, or a package of "
                f"`grete package build application`, which is brought to executors"
            )
        return ""


def _described(found: Interpreter) -> str:
    return f"Python {found.minor} for {found.platform}"
