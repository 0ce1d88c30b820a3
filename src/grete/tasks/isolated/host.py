"""The worker of one task whose instance is in the application's process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grete.api import StreamTask
from grete.application.serdes import BytesSerde, StreamSerdes
from grete.arrow import pa
from grete.failpoints import failpoint
from grete.tasks.collector import Collector
from grete.tasks.isolated.outputs import PlacedOutputs
from grete.tasks.isolated.worker import HostedTask, IsolatedApplication
from grete.tasks.results import StoreChange
from grete.tasks.task_worker import TaskWorker


class IsolatedWorker(TaskWorker):
    """Has files, outputs and commits of the task; keys and values are bytes here."""

    def __init__(self, application: IsolatedApplication, *others: Any) -> None:
        """`others` are those of TaskWorker."""
        self._application = application
        self._changed: list[tuple[str, pa.Array, pa.Array]] = []
        super().__init__(*others)

    def _make_collector(self) -> Collector:
        self._outputs = PlacedOutputs(self._settings, self._spec.default_system, self.task.index, self._facts)
        return self._outputs

    def _make_serdes(self) -> dict[int, StreamSerdes]:
        return {}

    def _serdes_of_store(self, name: str) -> StreamSerdes:
        return StreamSerdes(BytesSerde(), BytesSerde())

    def _begin_instance(self, *, continues: bool) -> StreamTask:
        hosted = self.hosted
        if hosted is None or self.instance is None or not continues:
            files = {name: store.file for name, store in self.stores.items()}
            hosted = self.hosted = self.instance = HostedTask(
                self._application, self._spec, self.task.index, files, self._outputs, self.metrics
            )
            self.control, self.timers = hosted.control, hosted.timers
            hosted.begin(continues=False)
            failpoint("task.after-init")
        else:
            hosted.begin(continues=True)
        return hosted

    def gather(self) -> None:
        """See TaskWorker."""
        assert self.hosted is not None, "a batch has begun"
        self._changed = list(self.hosted.take())

    def store_changes(self) -> Iterator[StoreChange]:
        """See TaskWorker."""
        now_ms = self._clock.wall_ms()
        changed, self._changed = self._changed, []
        for name, keys, values in changed:
            of_expiring = self._store_specs[name].is_expiring
            yield self._change(name, keys, values.to_pylist() if of_expiring else values, now_ms)

    def close(self) -> None:
        """See TaskWorker."""
        if self.instance is None and self.hosted is not None:
            self.hosted.drop()
        super().close()
