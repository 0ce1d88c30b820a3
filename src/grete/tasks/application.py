"""The application's class: imported, checked, and instances of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

from grete.api import AsyncStreamTask, DataFramePipeline, StreamTask
from grete.config.key_tables.job import APP_CLASS, TASK_CLASS
from grete.config.settings.job import JobSettings
from grete.errors import ApplicationError, ConfigError
from grete.tasks.spec import RunnerSpec


def load_task(spec: RunnerSpec) -> StreamTask:
    """A new instance of `task.class`.

    Raises:
        ConfigError: it cannot be imported or is not a StreamTask.
    """
    loaded = load_class(spec.task_class, "task.class")
    made = loaded()
    if not isinstance(made, StreamTask):
        raise ConfigError(f"task.class: {spec.task_class!r} is not a grete.StreamTask")
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
    except Exception as error:
        raise ApplicationError(f"{key}: {module_name!r} cannot be imported: {error!r}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ConfigError(f"{key}: module {module_name!r} has no {attribute!r}") from error


def check_application(job: JobSettings, kind: type[StreamTask] | type[DataFramePipeline]) -> None:
    """Find out, before anything is started for it, whether the application can be loaded.

    Raises:
        ConfigError: it cannot be found, or is not of that kind.
        ApplicationError: its module fails while it is imported.
    """
    folder = job.application_path
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    key, path = (
        (TASK_CLASS.name, job.task_class) if kind is StreamTask else (APP_CLASS.name, job.application_class)
    )
    found = load_class(path or "", key)
    if isinstance(found, type) and not issubclass(found, kind):
        raise ConfigError(f"{key}: {path!r} is not a grete.{kind.__name__}")
    if inspect.iscoroutinefunction(getattr(found, "process", None)) and not issubclass(
        found, AsyncStreamTask
    ):
        raise ConfigError(
            f"{key}: process of {path!r} is async def: derive the class from grete.AsyncStreamTask"
        )
