"""A task inside a Python worker process: instance, stores and collector."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grete.api import StreamTask
from grete.application.context import Context, TaskControl
from grete.application.expiry import task_store, unstamped
from grete.application.load import has_own, load_task
from grete.application.side_inputs import Process, SideInputs
from grete.application.store import TaskStore
from grete.application.timers import Timers
from grete.application.undo import Undoable
from grete.clock import Clock
from grete.config.application_config import ApplicationConfig
from grete.failpoints import failpoint
from grete.model.ids import SystemStreamPartition
from grete.serdes import StreamSerdes, store_serdes, stream_serdes
from grete.systems.base import System
from grete.systems.records import records, write
from grete.tasks.collector import Collector, StreamFacts
from grete.tasks.event_loop import TaskEventLoop
from grete.tasks.metrics import TaskMetrics
from grete.tasks.results import StoreChange
from grete.tasks.spec import RunnerSpec, StoreSpec, TaskProgress, TaskSpec
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.left_open import FilesLeftOpen
from grete.tasks.stores.paths import store_identity, store_path
from grete.tasks.stores.restoring import Restoring
from grete.tasks.stores.snapshot_places import SnapshotPlace, open_place
from grete.tasks.stores.snapshots import SnapshotTaker, snapshot_copies
from grete.tasks.stores.warm_copy import Copy, standby_copies, take_over

if TYPE_CHECKING:
    from grete.tasks.isolated.worker import HostedTask

_log = logging.getLogger("grete.stores")
_LEFT_OPEN = FilesLeftOpen(idle_s=30.0)
"""Of this process: its next assignment has most of the tasks of this one."""


class TaskWorker(Undoable):
    """One task's instance with its stores."""

    hosted: HostedTask | None = None
    """The instance, where it is in the application's own process."""

    def __init__(
        self,
        spec: RunnerSpec,
        task: TaskSpec,
        system: System,
        facts: StreamFacts,
        clock: Clock,
        events: TaskEventLoop,
    ) -> None:
        self.task = task
        self.events = events
        self._system = system
        self._facts = facts
        self._clock = clock
        self._spec = spec
        self._settings = spec.settings
        self._store_specs = {store.name: store for store in spec.stores}
        self.token = ""
        self.control = TaskControl()
        self.metrics = TaskMetrics(clock)
        self.collector: Collector = self._make_collector()
        self.serdes = self._make_serdes()
        self.stores: dict[str, TaskStore[StoreFile]] = {
            store.name: self._open_store(store) for store in spec.stores
        }
        self._snapshot_takers = list(self._takers_of_snapshots())
        self.instance: StreamTask | None = None
        self._side_inputs: SideInputs | None = None
        self.timers = Timers(is_heard=False)

    def _make_collector(self) -> Collector:
        return Collector(self._settings, self._spec.default_system, self.task.index, self._facts)

    def _make_serdes(self) -> dict[int, StreamSerdes]:
        inputs = {index: self._spec.ssps[index].system_stream for index in self.task.ssps}
        return {index: stream_serdes(stream, self._settings) for index, stream in inputs.items()}

    def _serdes_of_store(self, name: str) -> StreamSerdes:
        return store_serdes(name, self._settings)

    def _open_store(self, store: StoreSpec) -> TaskStore[StoreFile]:
        path, identity = self._place(self._spec.store_directory, store)
        what = f"store {store.name!r} of task {self.task.name!r}"
        file = StoreFile(
            path,
            identity,
            refill=lambda: take_over(path, self._copies(store, identity)),
            restoring=Restoring(what, self._clock.monotonic_s, self.metrics.restored),
            now_ms=self._clock.wall_ms,
            ttl_ms=store.ttl_ms,
            left_open=_LEFT_OPEN,
        )
        return task_store(file, self._serdes_of_store(store.name), store.ttl_ms, self._clock.wall_ms)

    def _copies(self, store: StoreSpec, identity: str) -> Iterator[Copy]:
        """What there is of it elsewhere."""
        standbys = [self._place(directory, store)[0] for directory in self._spec.standby_directories]
        yield from standby_copies(standbys, identity)
        if (place := self._snapshot_place(store)) is not None:
            yield from snapshot_copies(place, identity)

    def _snapshot_place(self, store: StoreSpec) -> SnapshotPlace | None:
        """None without, and where an object store does not answer: a task does not stand still for its snapshots."""
        location = self._settings.job.snapshot_location
        try:
            of_job = None if location is None else open_place(location, self._settings.azure)
        except OSError as error:
            _log.warning("task %s has no snapshots: %s", self.task.name, error)
            return None
        own = store_path(Path(), self.task.name, store.name).with_suffix("")
        return None if of_job is None else of_job.below(*own.parts)

    def _takers_of_snapshots(self) -> Iterator[SnapshotTaker]:
        for store in self._spec.stores:
            if (place := self._snapshot_place(store)) is not None:
                path, identity = self._place(self._spec.store_directory, store)
                interval_ms = self._settings.job.snapshot_interval_ms
                yield SnapshotTaker(path, identity, place, interval_ms, self._clock.wall_ms)

    def _place(self, directory: str, store: StoreSpec) -> tuple[Path, str]:
        return (
            store_path(Path(directory), self.task.name, store.name),
            store_identity(store, self.task.changelog_partition),
        )

    def begin_batch(self, progress: TaskProgress) -> StreamTask:
        """Make stores and instance stand at exactly the committed state, and return the instance."""
        continues = self.instance is not None and self.token == progress.token
        for name, store in self.stores.items():
            spec = self._store_specs[name]
            place = (self._system, spec.changelog_stream, self.task.changelog_partition)
            store.file.follow(*place, progress.store_positions.get(name, 0), progress.token)
            store.begin_batch(continues=continues)
        for taker in self._snapshot_takers:
            taker.look()
        if self._snapshot_takers:
            self.metrics.snapshot_is_of(min(taker.good_ms for taker in self._snapshot_takers))
        failpoint("task.before-init")
        self.control.wants_commit = False
        try:
            instance = self._begin_instance(continues=continues)
        except SystemExit as error:
            raise RuntimeError(
                f"init() of task {self.task.name!r} has called sys.exit({error.code!r})"
            ) from error
        self.token = ""  # until this attempt has ended well, nothing in memory can be trusted
        return instance

    def _begin_instance(self, *, continues: bool) -> StreamTask:
        """Go on with the instance, else with a new one."""
        if self.instance is None or not continues:
            self.control = TaskControl()
            self.instance = load_task(self._spec.task_class)
            self.timers = Timers(is_heard=has_own(type(self.instance), "on_timer"))
            filled = self._settings.side_inputs
            sides = self._side_inputs = SideInputs(filled, self.stores) if filled else None
            context = Context(
                self.task.name,
                [self._spec.ssps[index] for index in self.task.ssps],
                ApplicationConfig(self._spec.settings.raw),
                self.stores if sides is None else sides.of_task,
                self.metrics,
                self.timers,
            )
            if sides is not None:
                sides.init(context)
            self.events.finish_call(self.instance.init(context))
            failpoint("task.after-init")
        return self.instance

    def receiver(self, ssp: SystemStreamPartition) -> Process:
        """Who gets the messages of an SSP: `process` of the instance, or the stores that its stream fills."""
        assert self.instance is not None, "a batch has begun"
        process = self.instance.process
        return process if self._side_inputs is None else self._side_inputs.receiver(ssp, process)

    def gather(self) -> None:
        """Before a commit: have here what the task made."""

    def partition_count(self, stream: str) -> int:
        """How many partitions a stream of the job's system has."""
        return self._facts.partitions(stream)

    def store_changes(self) -> Iterator[StoreChange]:
        """The changes of each store that has some."""
        now_ms = self._clock.wall_ms()
        for name, store in self.stores.items():
            changes = store.changes()
            if changes:
                yield self._change(name, list(changes), list(changes.values()), now_ms)

    def _change(
        self, name: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], now_ms: int
    ) -> StoreChange:
        store, times_ms = self._store_specs[name], [now_ms] * len(keys)
        if store.is_expiring:
            values, times_ms = unstamped(values, now_ms)
        made = records(keys, values, times_ms)
        place = (store.changelog_stream, self.task.changelog_partition)
        return StoreChange(name, *place, made, write(made), self.stores[name].file)

    def close(self) -> None:
        """Let the instance close and leave the files to the task's next one here.

        Those of a task without an instance are closed: it has failed, and they are looked at anew.
        """
        instance, self.instance = self.instance, None
        try:
            if instance is not None:
                self.events.finish_call(instance.close())
        finally:
            for store in self.stores.values():
                if instance is None:
                    store.file.close()
                else:
                    store.file.leave()
