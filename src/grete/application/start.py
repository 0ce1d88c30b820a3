"""The first module of an application's process: nothing of grete's can be imported there but what is named here.

    python -I start.py READS WRITES LIFE FOLDER
    python -P start.py functions FOLDER WORKER

`READS` and `WRITES` are the descriptors of its pipe, `LIFE` one that ends with the worker, and `FOLDER` that of the
application's modules or nothing. The interpreter is that of the application's environment. Below `grete` it sees the
modules in `API`, and those of the application's own; `-I` leaves out PYTHONPATH and the working folder.

The second form is the process from which Spark forks its workers for a pipeline's functions, with Spark's own modules
on PYTHONPATH; `WORKER` is the module of these workers.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path

_OLDEST = (3, 11)
API = (
    "grete",
    "grete.api",
    "grete.clock",
    "grete.errors",
    "grete.suggestions",
    "grete.text_logs",
    "grete.model",
    "grete.model.ending",
    "grete.model.ids",
    "grete.model.streams",
    "grete.application",
    "grete.application.calls",
    "grete.application.carried",
    "grete.application.collector",
    "grete.application.context",
    "grete.application.expectations",
    "grete.application.expiry",
    "grete.application.hosted",
    "grete.application.load",
    "grete.application.metrics",
    "grete.application.pipe",
    "grete.application.pipeline",
    "grete.application.plugins",
    "grete.application.poison",
    "grete.application.process",
    "grete.application.questions",
    "grete.application.resolved_config",
    "grete.application.serdes",
    "grete.application.side_inputs",
    "grete.application.store",
    "grete.application.timers",
    "grete.application.undo",
)
"""Modules of the framework that an application's process has; they import these and the standard library."""


class ApiFinder:
    """Finds the modules of `API`, before anything on `sys.path`."""

    def __init__(self, package: Path, folder: str) -> None:
        """`package` is the folder of grete, `folder` that of the application or nothing."""
        self._package = package
        self._folder = folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name not in API:
            return None
        parts = name.split(".")
        place = self._package.joinpath(*parts[1:])
        if not (place / "__init__.py").exists():
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        own = [str(Path(self._folder, *parts))] if self._folder else []
        return importlib.util.spec_from_file_location(
            name, place / "__init__.py", submodule_search_locations=own
        )


def _end_with_the_worker(life: int) -> None:
    """Nothing is ever written there; a worker that was killed cannot ask its processes to end."""
    os.read(life, 1)
    os._exit(0)


def _find_api(folder: str) -> None:
    sys.meta_path.insert(0, ApiFinder(Path(__file__).resolve().parent.parent, folder))


def _evaluate_functions(folder: str, worker: str) -> None:
    _find_api(folder)
    sys.argv[1:] = [worker]  # read while Spark's module is imported
    daemon = importlib.import_module("pyspark.daemon")
    if folder:
        sys.path.insert(0, folder)
    daemon.manager()


def main(arguments: list[str]) -> None:
    """Serve the worker until its pipe ends."""
    if sys.version_info < _OLDEST:
        sys.exit(
            f"applications need Python {_OLDEST[0]}.{_OLDEST[1]} or later, this is {sys.version.split()[0]}"
        )
    if arguments[0] == "functions":
        _evaluate_functions(*arguments[1:])
        return
    reads, writes, life = map(int, arguments[:3])
    for descriptor in (reads, writes, life):
        os.set_inheritable(descriptor, False)
    folder = arguments[3]
    _find_api(folder)
    from grete.application.process import serve  # it is found only now

    threading.Thread(target=_end_with_the_worker, args=(life,), daemon=True).start()
    if folder:
        sys.path.insert(0, folder)
    serve(reads, writes)


if __name__ == "__main__":
    main(sys.argv[1:])
