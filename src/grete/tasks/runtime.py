"""A task inside a Python worker process: instance, stores and collector, kept between batches while still true.

Spark reuses Python workers but promises nothing about which worker gets which task. What a worker keeps of a task
is valid only when the attempt that left it so is the one that was committed; the attempt's token shows it.
"""

from __future__ import annotations

import sys
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from grete.api import AsyncStreamTask, StreamTask
from grete.clock import Clock, SystemClock
from grete.config.application_config import ApplicationConfig
from grete.config.key_tables.job import TASK_CLASS
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.failpoints import failpoint
from grete.model.ids import SystemStreamPartition, TaskName
from grete.serdes import StreamSerdes, store_serdes, stream_serdes
from grete.systems.base import Change, System
from grete.systems.factory import open_system
from grete.systems.outputs import OutputSystems
from grete.systems.records import records, unpack_changes, write
from grete.tasks.application import has_own, load_class, load_task
from grete.tasks.collector import Collector, StreamFacts
from grete.tasks.concurrent import Events
from grete.tasks.metrics import TaskMetrics
from grete.tasks.results import StoreChange
from grete.tasks.spec import RunnerSpec, StoreSpec, TaskProgress, TaskSpec
from grete.tasks.stores.file import ReadChanges, StoreFile
from grete.tasks.stores.paths import store_identity, store_path
from grete.tasks.stores.store import TaskStore
from grete.tasks.stores.warm_copy import take_over
from grete.tasks.timers import Timers

_OPEN_TASKS_LIMIT = 256
"""Tasks kept open per worker; each costs a file handle per store."""


class TaskControl:
    """Implements `grete.TaskCoordinator`; the runner reads the wishes at the end of the batch."""

    def __init__(self) -> None:
        self.wants_commit = False
        self.shutdown_task = False
        self.shutdown_all = False

    def commit(self) -> None:
        """See TaskCoordinator."""
        self.wants_commit = True

    def shutdown(self, *, all_tasks: bool = False) -> None:
        """See TaskCoordinator."""
        self.wants_commit = self.shutdown_task = True
        self.shutdown_all = self.shutdown_all or all_tasks


class Context:
    """Implements `grete.TaskContext`."""

    def __init__(
        self,
        spec: RunnerSpec,
        task: TaskSpec,
        stores: dict[str, TaskStore],
        metrics: TaskMetrics,
        timers: Timers,
    ) -> None:
        self._spec = spec
        self._task = task
        self._stores = stores
        self.metrics = metrics
        """See TaskContext."""
        self.scheduler = timers
        """See TaskContext."""

    @property
    def task_name(self) -> TaskName:
        """See TaskContext."""
        return self._task.name

    @property
    def system_stream_partitions(self) -> Sequence[SystemStreamPartition]:
        """See TaskContext."""
        return [self._spec.ssps[index] for index in self._task.ssps]

    @property
    def config(self) -> ApplicationConfig:
        """See TaskContext."""
        return ApplicationConfig(self._spec.config)

    def store(self, name: str) -> TaskStore:
        """See TaskContext."""
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores)) or "none"
            raise ConfigError(
                f"the job has no store {name!r} (configured: {known}); set stores.{name}.factory"
            ) from None


class TaskWorker:
    """One task's instance with its stores."""

    def __init__(
        self,
        spec: RunnerSpec,
        task: TaskSpec,
        system: System,
        facts: StreamFacts,
        clock: Clock,
        events: Events,
    ) -> None:
        self.task = task
        self.events = events
        self._system = system
        self._facts = facts
        self._clock = clock
        self._spec = spec
        self._settings = Settings.of(spec.config)
        self._store_specs = {store.name: store for store in spec.stores}
        self.token = ""
        self.control = TaskControl()
        self.metrics = TaskMetrics(clock)
        self.collector = Collector(self._settings, spec.default_system, task.index, facts)
        self.serdes: dict[int, StreamSerdes] = {
            index: stream_serdes(spec.ssps[index].system_stream, self._settings) for index in task.ssps
        }
        self.stores = {store.name: self._open_store(store) for store in spec.stores}
        self.instance: StreamTask | None = None
        self.timers = Timers(is_heard=False)

    def _open_store(self, store: StoreSpec) -> TaskStore:
        path, identity = self._place(self._spec.store_directory, store)
        copies = [self._place(directory, store)[0] for directory in self._spec.standby_directories]
        file = StoreFile(
            path, identity, refill=lambda: take_over(path, identity, copies), now_ms=self._clock.wall_ms
        )
        return TaskStore(file, store_serdes(store.name, self._settings))

    def _place(self, directory: str, store: StoreSpec) -> tuple[Path, str]:
        return (
            store_path(Path(directory), self.task.name, store.name),
            store_identity(store, self.task.changelog_partition),
        )

    def begin_batch(self, progress: TaskProgress) -> StreamTask:
        """Make stores and instance stand at exactly the committed state, and return the instance."""
        continues = self.instance is not None and self.token == progress.token
        for name, store in self.stores.items():
            changes = self._reader_of_changes(self._store_specs[name].changelog_stream, store.file)
            store.file.settle(progress.store_positions.get(name, 0), progress.token, changes, unpack_changes)
            store.begin_batch(continues=continues)
        failpoint("task.before-init")
        self.control.wants_commit = False
        if self.instance is None or not continues:
            self.control = TaskControl()
            self.instance = load_task(self._spec)
            self.timers = Timers(is_heard=has_own(type(self.instance), "on_timer"))
            context = Context(self._spec, self.task, self.stores, self.metrics, self.timers)
            self.events.finish_call(self.instance.init(context))
            failpoint("task.after-init")
        self.token = ""  # until this attempt has ended well, nothing in memory can be trusted
        return self.instance

    def _reader_of_changes(self, stream: str, file: StoreFile) -> ReadChanges:
        def changes(start: int, end: int) -> Iterator[Change]:
            partition = self.task.changelog_partition
            return self._system.changes(stream, partition, start, end, copied_ms=file.copied_ms)

        return changes

    def begin_message(self) -> None:
        """From here on `undo_message` can take back what the task does."""
        self.collector.begin_message()
        for store in self.stores.values():
            store.begin_message()

    def undo_message(self) -> None:
        """Take back outputs and store changes since `begin_message`."""
        self.collector.undo_message()
        for store in self.stores.values():
            store.undo_message()

    def partition_count(self, stream: str) -> int:
        """How many partitions a stream of the job's system has."""
        return self._facts.partitions(stream)

    def store_changes(self) -> Iterator[StoreChange]:
        """The changes of each store that has some."""
        now_ms = self._clock.wall_ms()
        for name, store in self.stores.items():
            changes = store.changes()
            if changes:
                made = records(list(changes), list(changes.values()), [now_ms] * len(changes))
                stream, partition = self._store_specs[name].changelog_stream, self.task.changelog_partition
                yield StoreChange(name, stream, partition, made, write(made), store.file)

    def close(self) -> None:
        """Let the instance close and release the files."""
        instance, self.instance = self.instance, None
        try:
            if instance is not None:
                self.events.finish_call(instance.close())
        finally:
            for store in self.stores.values():
                store.file.close()


class TaskWorkers:
    """The tasks this Python worker has open, the least recently used closed first."""

    def __init__(
        self,
        spec: RunnerSpec,
        system: System | None = None,
        clock: Clock | None = None,
        *,
        leaves_system: bool = False,
    ) -> None:
        """They open the spec's system, unless `system` is given; it is closed with them, unless it is left open."""
        if spec.application_path and spec.application_path not in sys.path:
            sys.path.insert(0, spec.application_path)
        self.spec = spec
        self.id = uuid.uuid4().hex
        self._leaves_system = leaves_system
        self._clock = SystemClock() if clock is None else clock
        self.system = system or open_system(
            Settings.of(spec.config), spec.default_system, Path(spec.home), self._clock
        )
        self.events = Events()
        self.outputs = OutputSystems(
            Settings.of(spec.config), spec.default_system, self.system, Path(spec.home), self._clock
        )
        self._facts = StreamFacts(self.outputs)
        self._open: OrderedDict[int, TaskWorker] = OrderedDict()
        self._limit = _OPEN_TASKS_LIMIT

    def worker(self, index: int) -> TaskWorker:
        """The task's worker, opened when necessary."""
        worker = self._open.pop(index, None)
        if worker is None:
            while len(self._open) >= self._limit:
                self._open.popitem(last=False)[1].close()
            worker = TaskWorker(
                self.spec, self.spec.tasks[index], self.system, self._facts, self._clock, self.events
            )
        self._open[index] = worker
        return worker

    @cached_property
    def is_async(self) -> bool:
        """Whether the application's tasks have several messages in progress, none of which is set aside alone."""
        loaded = load_class(self.spec.task_class, TASK_CLASS.name)
        is_async = isinstance(loaded, type) and issubclass(loaded, AsyncStreamTask)
        return is_async and self.spec.dead_letter_stream is None

    @cached_property
    def has_timers(self) -> bool:
        """Whether the application's class wants to be called for timers."""
        return has_own(load_class(self.spec.task_class, TASK_CLASS.name), "on_timer")

    @cached_property
    def hears_ends(self) -> bool:
        """Whether the application's class wants to be called at the end of its inputs."""
        return has_own(load_class(self.spec.task_class, TASK_CLASS.name), "on_end_of_stream")

    def is_open(self, index: int) -> bool:
        """Whether the task has an instance here."""
        return index in self._open and self._open[index].instance is not None

    def next_timer_ms(self, index: int) -> int | None:
        """When the next timer of an open task is due; None when it has none."""
        return self._open[index].timers.next_ms

    def make_room(self, tasks: int) -> None:
        """So many tasks are to be open at the same time, since they are committed together."""
        self._limit = max(_OPEN_TASKS_LIMIT, tasks)

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
        while self._open:
            self._open.popitem()[1].close()
        self.events.close()
        self.outputs.close()
        if not self._leaves_system:
            self.system.close()
