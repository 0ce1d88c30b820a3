"""Where the application of a processor is: by the configuration's own name, or by a class in the user's program."""

from __future__ import annotations

import sys
from pathlib import Path

from grete.api import DataFramePipeline, StreamTask
from grete.config.key_tables.job import APP_CLASS, APPLICATION_PATH, TASK_CLASS
from grete.config.settings.job import JobSettings
from grete.errors import ConfigError

Application = type[StreamTask] | type[DataFramePipeline]


def named(application: Application | None, given: JobSettings) -> dict[str, str]:
    """The keys that name the application: workers are processes of their own, which load it by its name.

    A class of the program's own file is named by that file, which workers import: what must not run there belongs
    below `if __name__ == "__main__"`.

    Raises:
        ConfigError: it is no class of a module, or of another kind.
    """
    if application is None:
        return {}
    if not (isinstance(application, type) and issubclass(application, StreamTask | DataFramePipeline)):
        raise ConfigError(
            f"the application is a class derived from grete.StreamTask or grete.DataFramePipeline, got "
            f"{application!r}; a function that makes tasks cannot be loaded by the processes that run them"
        )
    key = TASK_CLASS if issubclass(application, StreamTask) else APP_CLASS
    module, file = application.__module__, getattr(sys.modules[application.__module__], "__file__", None)
    if "<locals>" in application.__qualname__ or (module == "__main__" and file is None):
        raise ConfigError(
            f"{application.__qualname__} cannot be imported by the processes that run tasks: define it at the top of "
            f"a module, outside of functions and notebooks, and import it from there"
        )
    found: dict[str, str] = {}
    is_placed = given.application_path is not None
    if file is not None and not is_placed and not _is_installed(Path(file)):
        top = Path(file).resolve().parents[module.count(".") + (Path(file).name == "__init__.py")]
        found[APPLICATION_PATH.name] = str(top)
    if module == "__main__" and file is not None:
        module = Path(file).stem
    return {**found, key.name: f"{module}:{application.__qualname__}"}


def _is_installed(file: Path) -> bool:
    """Whether each process of this Python finds it."""
    return any(part in ("site-packages", "dist-packages") for part in file.resolve().parts)
