"""Makes an application of a test nameable, as `task.class` wants it: a class or a function that stands anywhere.

The names live in this module and only in this process; a job that runs for real names a module of its own.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable

from grete.api import (
    AsyncStreamTask,
    DataFramePipeline,
    IncomingMessageEnvelope,
    MessageCollector,
    StreamTask,
    TaskCoordinator,
)
from grete.errors import ConfigError

Process = Callable[[IncomingMessageEnvelope, MessageCollector, TaskCoordinator], Awaitable[None] | None]
"""StreamTask.process as a plain function, or AsyncStreamTask's as an `async def`."""

Application = type[StreamTask] | Process | str

Pipeline = type[DataFramePipeline]

_numbers = itertools.count(1)


def is_pipeline(application: Application | Pipeline) -> bool:
    """Whether it is a class of DataFrame pipelines; of a text nothing is known."""
    return isinstance(application, type) and issubclass(application, DataFramePipeline)


def name_of(application: Application | Pipeline) -> str:
    """A `task.class` or `app.class` that leads to the application: a text as it is, else a name in this module.

    Raises:
        ConfigError: it is neither such a class, nor a function, nor `module:Class`.
    """
    if isinstance(application, str):
        return application
    if isinstance(application, type):
        if not issubclass(application, StreamTask | DataFramePipeline):
            raise ConfigError(f"{application!r} is not a grete.StreamTask")
        return _keep(application)
    if not callable(application):
        raise ConfigError(f"{application!r} is no StreamTask class, no function and no 'module:Class'")
    return _keep(_task_of(application))


def _task_of(process_one: Process) -> type[StreamTask]:
    if inspect.iscoroutinefunction(process_one):
        return _async_task_of(process_one)

    class FunctionTask(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            process_one(envelope, collector, coordinator)

    return FunctionTask


def _async_task_of(process_one: Callable[..., Awaitable[None]]) -> type[StreamTask]:
    class AsyncFunctionTask(AsyncStreamTask):
        async def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            await process_one(envelope, collector, coordinator)

    return AsyncFunctionTask


def _keep(task: type[StreamTask | DataFramePipeline]) -> str:
    name = f"{task.__name__}_{next(_numbers)}"
    globals()[name] = task
    return f"{__name__}:{name}"
