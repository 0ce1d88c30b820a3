"""One task in the application's process: its instance, its stores, and what it gathers for its worker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from grete.application.collector import CarriedCollector, CarriedOutput
from grete.application.context import Context, TaskControl
from grete.application.expiry import task_store
from grete.application.load import has_own, load_task
from grete.application.metrics import CarriedMetrics
from grete.application.pipe import Blob, pack_column
from grete.application.questions import Worker, WorkersStore
from grete.application.side_inputs import SideInputs
from grete.application.store import TaskStore
from grete.application.timers import Timers
from grete.application.undo import Undoable
from grete.clock import SystemClock
from grete.model.ids import SystemStreamPartition, TaskName

Reply = tuple[Any, Sequence[Blob]]


class Hosted(Undoable):
    """One task's instance, with its stores and what it has gathered."""

    def __init__(self, worker: Worker, index: int, hello: Mapping[str, Any], events: CallEventLoop) -> None:
        name, ssps = hello["tasks"][index]
        self.index = index
        self.control = TaskControl()
        self.collector: CarriedCollector = CarriedCollector(
            lambda stream: _open_output(worker, stream), passes_traces=hello["passes_traces"]
        )
        self.bases = {store: WorkersStore(worker, index, store) for store in hello["stores"]}
        self.stores: dict[str, TaskStore[WorkersStore]] = {
            store: task_store(self.bases[store], worker.serdes(described), ttl_ms, SystemClock().wall_ms)
            for store, (described, ttl_ms) in hello["stores"].items()
        }
        self.metrics = CarriedMetrics(lambda *metric: worker.ask("metric", [index, *metric]))
        self.instance = load_task(hello["task_class"])
        self.timers = Timers(is_heard=has_own(type(self.instance), "on_timer"))
        self.side_inputs = SideInputs(hello["side_inputs"], self.stores)
        inputs = [SystemStreamPartition(*hello["ssps"][ssp]) for ssp in ssps]
        stores = self.side_inputs.of_task
        self.context = Context(TaskName(name), inputs, worker.config, stores, self.metrics, self.timers)
        self._events = events

    def begin_batch(self, *, continues: bool) -> None:
        """See TaskWorker.begin_batch."""
        self.control.wants_commit = False
        for name, store in self.stores.items():
            if not store.begin_batch(continues=continues):
                self.bases[name].forget()

    def standing(self) -> list[Any]:
        """What the worker has to know after each call."""
        control = self.control
        return [control.wants_commit, control.shutdown_task, control.shutdown_all, self.timers.next_ms]

    def call_timers(self, now_ms: int) -> int:
        """Call `on_timer` for each key that is due; returns how many."""
        calls = 0
        self.collector.timestamp_ms = now_ms
        for key in self.timers.due(now_ms):
            self._events.finish(self.instance.on_timer(key, self.collector, self.control))
            calls += 1
        return calls

    def take(self) -> Reply:
        """Outputs, changes of stores and metrics since the batch began."""
        outputs = self.collector.take()
        changes = [(name, made) for name, store in self.stores.items() if (made := store.changes())]
        blobs = [blob for _, of_output in outputs for blob in of_output]
        for _, made in changes:
            blobs += [*pack_column(list(made)), *pack_column(list(made.values()))]
        value = [[head for head, _ in outputs], [name for name, _ in changes], self.metrics.take()]
        return value, blobs


def _open_output(worker: Worker, stream: str) -> CarriedOutput:
    (partitions, largest, described), _ = worker.ask("open", stream)
    return CarriedOutput(stream, worker.serdes(described), partitions, largest)


class CallEventLoop:
    """Ends calls of methods that may be `async def`."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def finish(self, result: Any, timeout_s: float | None = None) -> None:
        """Run a coroutine until it has ended."""
        if not inspect.iscoroutine(result):
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(_in_time(result, timeout_s))


async def _in_time(result: Any, timeout_s: float | None) -> None:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await result
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"it took longer than {timeout_s} s, see task.callback.timeout.ms") from error
