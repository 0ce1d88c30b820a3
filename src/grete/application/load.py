"""The application's classes: imported, and checked."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

from grete.api import AsyncStreamTask, StreamTask
from grete.errors import ApplicationError, ConfigError


def find_modules_in(folder: str | None) -> None:
    """Let this process find the application's modules, which are in the folder if there is one."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)


def load_task(task_class: str) -> StreamTask:
    """A new instance of `task.class`.

    Raises:
        ConfigError: it cannot be imported or is not a StreamTask.
    """
    loaded = load_class(task_class, "task.class")
    made = loaded()
    if not isinstance(made, StreamTask):
        raise ConfigError(f"task.class: {task_class!r} is not a grete.StreamTask")
    return made


def has_own(kind: type[StreamTask], method: str) -> bool:
    """Whether the class has a method of its own, and not StreamTask's that does nothing."""
    return getattr(kind, method, None) is not getattr(StreamTask, method)


def load_class(path: str, key: str) -> Any:
    """The class that `key` names as `module:Class` or `module.Class`.

    Raises:
        ConfigError: naming what could not be found.
        ApplicationError: the module fails while it is imported.
    """
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    if not module_name or not attribute:
        raise ConfigError(f"{key}: write it as module:Class, got {path!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{key}: no module {error.name!r} for {path!r}; put its folder into job.application.path"
        ) from error
    except (Exception, SystemExit) as error:  # a script may end with sys.exit(main())
        raise ApplicationError(f"{key}: {module_name!r} cannot be imported: {error!r}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ConfigError(f"{key}: module {module_name!r} has no {attribute!r}") from error


def check_class(found: Any, kind: type, key: str, path: str) -> None:
    """Find out, without an instance, whether a class is of the kind that its key asks for.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(found, type) and not issubclass(found, kind):
        raise ConfigError(f"{key}: {path!r} is not a grete.{kind.__name__}")
    is_async = inspect.iscoroutinefunction(getattr(found, "process", None))
    if is_async and not issubclass(found, AsyncStreamTask):
        raise ConfigError(
            f"{key}: process of {path!r} is async def: derive the class from grete.AsyncStreamTask"
        )
