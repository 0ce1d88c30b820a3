"""The tasks inside a Python worker process: instances, stores and collectors, kept between batches while still true.

Spark reuses Python workers but promises nothing about which worker gets which task. What a worker keeps of a task
is valid only when the attempt that left it so is the one that was committed; the attempt's token shows it.
"""

from __future__ import annotations

import uuid
from functools import cached_property, partial
from pathlib import Path

from grete.api import AsyncStreamTask
from grete.application.beside import modules_folder
from grete.application.load import find_modules_in, has_own, load_class
from grete.clock import Clock, SystemClock
from grete.config.key_tables.job import TASK_CLASS
from grete.config.log_levels import log_levels, set_levels
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.outputs import OutputSystems
from grete.tasks.collector import StreamFacts
from grete.tasks.event_loop import TaskEventLoop
from grete.tasks.isolated.host import IsolatedWorker
from grete.tasks.isolated.worker import IsolatedApplication, hello
from grete.tasks.spec import RunnerSpec
from grete.tasks.task_worker import TaskWorker


class TaskWorkers:
    """The tasks that this process has open, each from its first record until its share ends."""

    def __init__(
        self,
        spec: RunnerSpec,
        system: System | None = None,
        clock: Clock | None = None,
        *,
        leaves_system: bool = False,
    ) -> None:
        """They open the spec's system, unless `system` is given; it is closed with them, unless it is left open."""
        self._is_isolated = spec.settings.job.is_isolated
        self._application: IsolatedApplication | None = None
        if not self._is_isolated:
            find_modules_in(spec.application_path)
        set_levels(log_levels(modules_folder(spec.application_path, spec.application_environment)))
        self.spec = spec
        self.id = uuid.uuid4().hex
        self._leaves_system = leaves_system
        self._clock = SystemClock() if clock is None else clock
        self.system = system or open_system(spec.settings, spec.default_system, Path(spec.home), self._clock)
        self.events = TaskEventLoop()
        self.outputs = OutputSystems(
            spec.settings, spec.default_system, self.system, Path(spec.home), self._clock
        )
        self._facts = StreamFacts(self.outputs)
        self._open: dict[int, TaskWorker] = {}

    def input_system(self, name: str) -> System:
        """A system that tasks read from; one that is not the job's own is opened when it is first asked for."""
        return self.outputs.named(name)

    def worker(self, index: int) -> TaskWorker:
        """The task's worker, opened when necessary."""
        worker = self._open.get(index)
        if worker is None:
            made = TaskWorker if not self._is_isolated else partial(IsolatedWorker, self.application)
            worker = self._open[index] = made(
                self.spec, self.spec.tasks[index], self.system, self._facts, self._clock, self.events
            )
        return worker

    @property
    def application(self) -> IsolatedApplication:
        """The application's own process, started when it is first asked for, and again after its end.

        Raises:
            ConfigError, ApplicationError: it cannot load the application.
        """
        if self._application is not None and self._application.is_gone:
            for index in list(self._open):
                self.drop(index)
            self._application.close()
            self._application = None
        if self._application is None:
            spec = self.spec
            self._application = IsolatedApplication(
                hello(spec), spec.application_path, spec.application_environment
            )
        return self._application

    @cached_property
    def is_async(self) -> bool:
        """Whether the application's tasks have several messages in progress, none of which is set aside alone."""
        if self._is_isolated or self.spec.dead_letter_stream is not None:
            return False
        loaded = load_class(self.spec.task_class, TASK_CLASS.name)
        return isinstance(loaded, type) and issubclass(loaded, AsyncStreamTask)

    @cached_property
    def has_timers(self) -> bool:
        """Whether the application's class wants to be called for timers."""
        if self._is_isolated:
            return self.application.has("has_timers")
        return has_own(load_class(self.spec.task_class, TASK_CLASS.name), "on_timer")

    @cached_property
    def hears_ends(self) -> bool:
        """Whether the application's class wants to be called at the end of its inputs."""
        if self._is_isolated:
            return self.application.has("hears_ends")
        return has_own(load_class(self.spec.task_class, TASK_CLASS.name), "on_end_of_stream")

    def is_open(self, index: int) -> bool:
        """Whether the task has an instance here."""
        return index in self._open and self._open[index].instance is not None

    def next_timer_ms(self, index: int) -> int | None:
        """When the next timer of an open task is due; None when it has none."""
        return self._open[index].timers.next_ms

    def succeeded(self, index: int, token: str) -> None:
        """The task's memory is the committed state, provided that the attempt of this token is committed."""
        if index in self._open:
            self._open[index].token = token

    def drop(self, index: int) -> None:
        """Forget a task whose attempt failed; the next attempt opens it afresh."""
        worker = self._open.pop(index, None)
        if worker is not None:
            worker.instance = (
                None  # it failed in the middle of a message: closing it properly is not promised
            )
            worker.close()

    def close(self) -> None:
        """Close every task."""
        try:
            while self._open:
                self._open.popitem()[1].close()
        finally:
            if self._application is not None:
                self._application.close()
        self.events.close()
        self.outputs.close()
        if not self._leaves_system:
            self.system.close()
