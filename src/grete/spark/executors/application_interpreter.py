"""The interpreter of an application's own environment on an executor, for the functions of its pipeline.

    python -P -m grete.spark.executors.application_interpreter PLACE -m DAEMON WORKER

Functions that come through Spark Connect are evaluated by the program that the driver names. On a cluster that is a
file among Spark's files, which starts this module in the framework's interpreter of the executor; it becomes the
application's, in the environment that was brought there, be it the first process of a machine that came later.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from grete.application import start
from grete.application.beside import interpreter, modules_folder
from grete.errors import GreteError
from grete.packages.transport import brought


class ApplicationPlace(msgspec.Struct, frozen=True):
    """The application as executors have it, in their working folder. `digest` is of the package that its environment
    is, empty where it is none and lies at the same path everywhere; see `packages.transport.brought`.
    """

    environment: str | None
    digest: str
    into: str | None
    modules: str | None


def program(python: str, place: ApplicationPlace) -> str:
    """The text of the file; `python` is the framework's interpreter on executors."""
    words = [python, "-P", "-m", __name__, msgspec.json.encode(place).decode()]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def main(arguments: Sequence[str]) -> None:
    """Become the process from which Spark forks its workers."""
    place = msgspec.json.decode(arguments[0], type=ApplicationPlace)
    try:
        environment = place.environment
        if place.digest:
            into = None if place.into is None else Path(place.into)
            environment = str(brought(Path.cwd() / str(environment), place.digest, into))
        python = interpreter(environment)
        modules = modules_folder(place.modules and str(Path.cwd() / place.modules), environment) or ""
    except GreteError as error:
        sys.exit(f"the application's functions cannot be evaluated here: {error}")
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(_sparks_modules())}
    os.execve(python, [python, "-P", start.__file__, "functions", modules, arguments[3]], given)  # noqa: S606


def _sparks_modules() -> Sequence[str]:
    """The archives that Spark has put on the path, else those of the Spark that is installed here."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = [place for place in given if _is_of_spark(Path(place))]
    spec = importlib.util.find_spec("pyspark")
    if not found and spec is not None and spec.origin is not None:
        found = [
            str(path) for path in Path(spec.origin).parent.glob("python/lib/*.zip") if _is_of_spark(path)
        ]
    return found


def _is_of_spark(path: Path) -> bool:
    return path.suffix == ".zip" and path.name.startswith(("pyspark", "py4j-"))


if __name__ == "__main__":
    main(sys.argv[1:])
