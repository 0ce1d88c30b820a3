"""A task whose instance is in the application's process: its files, outputs and commits are in this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from grete.api import MessageCollector, StreamTask, TaskCoordinator
from grete.application.beside import ApplicationProcess, CallFailed, interpreter, modules_folder
from grete.application.context import TaskControl
from grete.application.pipe import Blob, pack_column
from grete.application.poison import PoisonPolicy
from grete.application.timers import Timers
from grete.arrow import pa
from grete.config.application_config import ApplicationConfig
from grete.config.log_levels import levels_beside
from grete.config.settings import Settings
from grete.errors import JobError
from grete.model.ids import SystemStream
from grete.serdes import serde_names, store_serde_names
from grete.systems.records import headers_of
from grete.tasks.isolated.columns import as_blobs, as_column, numbers_as_blob
from grete.tasks.isolated.outputs import BLOBS, PlacedOutputs
from grete.tasks.metrics import TaskMetrics
from grete.tasks.spec import RunnerSpec
from grete.tasks.stores.file import StoreFile

_ROWS = 4_096
"""Of a store's scan at once."""
_KEY, _VALUE, _TIME_MS, _OFFSET = range(4)


def hello(spec: RunnerSpec) -> dict[str, Any]:
    """Everything that the application's process has to know of the job.

    Raises:
        ConfigError: a serde that it cannot have.
    """
    settings, poison = spec.settings, spec.poison
    return {
        **minimal_hello(
            settings, spec.task_class, modules_folder(spec.application_path, spec.application_environment)
        ),
        "ssps": [[one.system, one.stream, one.partition, one.key_bucket] for one in spec.ssps],
        "tasks": [[task.name, list(task.ssps)] for task in spec.tasks],
        "stores": {one.name: [store_serde_names(one.name, settings), one.ttl_ms] for one in spec.stores},
        "inputs": {
            index: serde_names(spec.ssps[index].system_stream, settings) for index in range(len(spec.ssps))
        },
        "is_guarded": spec.dead_letter_stream is not None,
        "passes_traces": settings.traces.endpoint is not None,
        "poison": {**asdict(poison), "exceptions": sorted(poison.exceptions)},
    }


def minimal_hello(settings: Settings, task_class: str, folder: str | None = None) -> dict[str, Any]:
    """As `hello`, for a process in which no task is opened; the application's modules are in the folder."""
    timeout_ms = settings.task.callback_timeout_ms
    return {
        "config": dict(settings.raw),
        "task_class": task_class,
        "side_inputs": settings.side_inputs,
        "poison": asdict(PoisonPolicy()) | {"exceptions": []},
        "message_s": timeout_ms / 1000 if timeout_ms > 0 else None,
        "levels": levels_beside(folder),
    }


class IsolatedApplication:
    """The application's process of a worker, with the description of its class."""

    def __init__(self, said: Mapping[str, Any], folder: str | None, environment: str | None) -> None:
        """Starts it, for what `hello` gives; the application's modules are in the folder, or in the environment.

        Raises:
            ConfigError, ApplicationError: see `ApplicationProcess`.
        """
        self._given = ApplicationConfig(said["config"])
        self._process = ApplicationProcess(
            interpreter(environment),
            modules_folder(folder, environment),
            shown=f"task.class={said['task_class']}",
        )
        try:
            self._description = self._process.load(said, self._answer)
        except BaseException:
            self._process.close()
            raise
        self.call = self._process.call

    def has(self, what: str) -> bool:
        """Whether the class `is_async`, `has_timers` or `hears_ends`."""
        return bool(self._description[what])

    def _answer(self, verb: str, value: Any, blobs: Sequence[bytes]) -> tuple[Any, Sequence[Blob]]:
        return self.secret(value), ()

    def secret(self, key: str) -> str:
        """The value of a key whose references are resolved."""
        return self._given[key]

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process.is_gone

    def close(self) -> None:
        """End the process."""
        self._process.close()


class TimersThere(Timers):
    """The timers of a task's instance in the application's process."""

    known_ms: int | None = None

    def __init__(self) -> None:
        super().__init__(is_heard=False)

    @property
    def next_ms(self) -> int | None:
        """See Timers."""
        return self.known_ms


class HostedTask(StreamTask):
    """A task's instance in the application's process, as its worker calls it."""

    def __init__(
        self,
        application: IsolatedApplication,
        spec: RunnerSpec,
        index: int,
        files: Mapping[str, StoreFile],
        outputs: PlacedOutputs,
        metrics: TaskMetrics,
    ) -> None:
        self._application = application
        self._spec = spec
        self._index = index
        self._files = files
        self._outputs = outputs
        self._metrics = metrics
        self.control = TaskControl()
        self.timers = TimersThere()

    def begin(self, *, continues: bool) -> None:
        """Begin a batch. Raises what `init` raises."""
        self._stand(self._call("begin", [self._index, continues])[0])

    def _stand(self, standing: Sequence[Any]) -> None:
        control = self.control
        control.wants_commit, control.shutdown_task, control.shutdown_all, self.timers.known_ms = standing

    def process(  # type: ignore[override] # all of its calls cross the pipe together
        self, ssp_index: int, rows: pa.RecordBatch
    ) -> tuple[int, list[tuple[int, str]]]:
        """Process records; how many were, and rows and errors of those that are set aside.

        Raises:
            CallFailed: one failed.
        """
        given = headers_of(rows)
        headers = None if given is None else [_as_hex(one) for one in given]
        blobs: list[Blob] = [numbers_as_blob(rows.column(_OFFSET)), numbers_as_blob(rows.column(_TIME_MS))]
        blobs += [*as_blobs(rows.column(_KEY)), *as_blobs(rows.column(_VALUE))]
        value, _ = self._application.call(
            "process", [self._index, ssp_index, headers], blobs, answers=self._answer
        )
        done, aside, *standing = value
        self._stand(standing)
        return done, aside

    def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        """Call its `window`."""
        self._stand(self._call("window", self._index)[0])

    def on_end_of_stream(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        """Call its `on_end_of_stream`."""
        self._stand(self._call("end", self._index)[0])

    def call_timers(self, now_ms: int) -> int:
        """Call its `on_timer` for each key that is due; how many were."""
        calls, *standing = self._call("timers", [self._index, now_ms])[0]
        self._stand(standing)
        return int(calls)

    def take(self) -> Iterator[tuple[str, pa.Array, pa.Array]]:
        """Take what it made of the batch; gives each store that was changed, with keys and values."""
        (heads, stores, metrics), blobs = self._call("take", self._index)
        for number, (stream, key_base, headers) in enumerate(heads):
            self._outputs.add(stream, key_base, headers, blobs[number * BLOBS : (number + 1) * BLOBS])
        for kind, group, name, calls in metrics:
            for method, arguments in calls:
                getattr(self._metric(kind, group, name, None), method)(*arguments)
        left = blobs[len(heads) * BLOBS :]
        for number, store in enumerate(stores):
            six = left[number * 6 : (number + 1) * 6]
            yield store, as_column(six[:3]), as_column(six[3:])

    def drop(self) -> None:
        """Let the process forget it, in whatever state it is."""
        if not self._application.is_gone:
            self._call("drop", self._index)

    def close(self) -> None:
        """Call its `close`."""
        if not self._application.is_gone:
            self._call("close", self._index)

    def _call(self, verb: str, value: object) -> tuple[Any, list[bytes]]:
        try:
            return self._application.call(verb, value, answers=self._answer)
        except CallFailed as failed:
            raise failed.error from failed.error.__cause__

    # --- questions of the process ---

    def _answer(self, verb: str, value: Any, blobs: Sequence[bytes]) -> tuple[Any, Sequence[Blob]]:
        if verb == "get":
            found = self._files[value[1]].get(blobs[0])
            return (False, ()) if found is None else (True, (found,))
        if verb == "scan":
            last = blobs[1] if value[2] else None
            rows = list(islice(self._files[value[1]].scan(blobs[0], last), _ROWS))
            keys, values = zip(*rows, strict=True) if rows else ((), ())
            return len(rows) < _ROWS, [*pack_column(keys), *pack_column(values)]
        if verb == "open":
            output = self._outputs.output(value)
            serdes = serde_names(SystemStream.parse(value), self._spec.settings)
            return [output.partitions, output.largest, serdes], ()
        if verb == "metric":
            self._metric(*value[1:])
            return None, ()
        if verb == "config":
            return self._application.secret(value), ()
        raise JobError(f"the application's process asks for {verb!r}, which there is not")

    def _metric(self, kind: str, group: str, name: str, value: Any) -> Any:
        if kind == "gauge":
            return self._metrics.gauge(name, value, group=group)
        return (self._metrics.counter if kind == "counter" else self._metrics.timer)(name, group=group)


def _as_hex(headers: Sequence[tuple[str, bytes | None]] | None) -> list[Any] | None:
    return (
        None
        if headers is None
        else [(name, None if value is None else value.hex()) for name, value in headers]
    )
