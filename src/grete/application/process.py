"""The application's process: holds the instances of a worker's tasks, and calls them as the worker asks.

The worker sends a request and waits for `done` or `failed`. Meanwhile the process may ask the worker something, and
waits for `answer` or `refused`: a store's entry, a stream's partitions, a secret. The application's prints go to the
worker's log, since the pipe has descriptors of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import length_hint
from typing import Any

from grete.api import AsyncStreamTask, IncomingMessageEnvelope, Serde, StreamTask
from grete.application.calls import call_for_each, is_machines_error
from grete.application.carried import describe_error, rebuild_error
from grete.application.collector import CarriedCollector, CarriedOutput
from grete.application.context import Context, TaskControl
from grete.application.load import check_class, has_own, load_class, load_task
from grete.application.metrics import CarriedMetrics
from grete.application.pipe import Blob, Pipe, pack_column, unpack_column
from grete.application.poison import PoisonPolicy
from grete.application.serdes import BUILT_IN, StreamSerdes, load_own_serde, values_of
from grete.application.store import TaskStore
from grete.application.timers import Timers
from grete.model.ids import SystemStreamPartition, TaskName

LOG_MARK = "\x1e"
"""Begins a line that is a log record, as JSON [level, logger, text]."""
_WHOLE_ROWS = 50_000
"""A store with no more entries is read once, and not once for each key."""
_encode_log = json.JSONEncoder().encode

Reply = tuple[Any, Sequence[Blob]]


class Worker:
    """The worker, as its application's process can ask it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.config: Mapping[str, str] = {}

    def ask(self, verb: str, value: object, blobs: Sequence[Blob] = ()) -> tuple[Any, list[bytes]]:
        """The worker's answer.

        Raises:
            GreteError: it refuses.
        """
        self._pipe.send(verb, value, blobs)
        kind, answer, found = self._pipe.receive()
        if kind == "refused":
            raise rebuild_error(answer)
        return answer, found

    def serde(self, described: Sequence[str]) -> Serde:
        """The serde of this implementation and name."""
        implementation, name = described
        if implementation in BUILT_IN:
            return BUILT_IN[implementation]()
        return load_own_serde(implementation, name, self.config)

    def serdes(self, described: Sequence[Sequence[str]]) -> StreamSerdes:
        """Serdes of keys and messages."""
        return StreamSerdes(*map(self.serde, described))


class WorkersConfig(Mapping[str, str]):
    """The job's configuration; what refers to a secret is asked for when it is wanted."""

    def __init__(self, config: Mapping[str, str], worker: Worker) -> None:
        self._config = config
        self._worker = worker

    def __getitem__(self, key: str) -> str:
        value = self._config[key]
        return str(self._worker.ask("config", key)[0]) if "${" in value else value

    def __contains__(self, key: object) -> bool:
        return key in self._config

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)

    def __repr__(self) -> str:
        return f"a configuration of {len(self)} keys"


class WorkersStore:
    """The base of a store, in the worker's file."""

    def __init__(self, worker: Worker, task: int, name: str) -> None:
        self._worker = worker
        self._place = [task, name]
        self.forget()

    def forget(self) -> None:
        """The file is another's, or what was changed since it was read is not in memory any more."""
        self._whole: dict[bytes, bytes] | None = None
        self._is_small = True

    def get(self, key: bytes) -> bytes | None:
        """See Base."""
        if self._whole is None and self._is_small:
            rows = list(islice(self.scan(None, None), _WHOLE_ROWS + 1))
            self._is_small = len(rows) <= _WHOLE_ROWS
            self._whole = dict(rows) if self._is_small else None
        if self._whole is not None:
            return self._whole.get(key)
        is_there, blobs = self._worker.ask("get", self._place, [key])
        return blobs[0] if is_there else None

    def scan(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """See Base."""
        low = first or b""
        while True:
            is_all, blobs = self._worker.ask("scan", [*self._place, last is not None], [low, last or b""])
            rows = list(zip(unpack_column(blobs[:3]), unpack_column(blobs[3:]), strict=True))
            yield from rows  # type: ignore[misc] # a store has no None
            if is_all:
                return
            low = (rows[-1][0] or b"") + b"\0"


class Hosted:
    """One task's instance, with its stores and what it has gathered."""

    def __init__(self, worker: Worker, index: int, hello: Mapping[str, Any], events: Events) -> None:
        name, ssps = hello["tasks"][index]
        self.index = index
        self.control = TaskControl()
        self.collector = CarriedCollector(lambda stream: _open_output(worker, stream))
        self.bases = {store: WorkersStore(worker, index, store) for store in hello["stores"]}
        self.stores = {
            store: TaskStore(self.bases[store], worker.serdes(described))
            for store, described in hello["stores"].items()
        }
        self.metrics = CarriedMetrics(lambda *metric: worker.ask("metric", [index, *metric]))
        self.instance = load_task(hello["task_class"])
        self.timers = Timers(is_heard=has_own(type(self.instance), "on_timer"))
        inputs = [SystemStreamPartition(*hello["ssps"][ssp]) for ssp in ssps]
        self.context = Context(TaskName(name), inputs, worker.config, self.stores, self.metrics, self.timers)
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

    def begin_message(self) -> None:
        """See TaskWorker.begin_message."""
        self.collector.begin_message()
        for store in self.stores.values():
            store.begin_message()

    def undo_message(self) -> None:
        """See TaskWorker.undo_message."""
        self.collector.undo_message()
        for store in self.stores.values():
            store.undo_message()

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


class Events:
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


class Application:
    """The application, as its worker calls it."""

    def __init__(self, pipe: Pipe) -> None:
        self._worker = Worker(pipe)
        self._events = Events()
        self._hello: dict[str, Any] = {}
        self._open: dict[int, Hosted] = {}
        self._serdes: dict[int, StreamSerdes] = {}
        self._poison = PoisonPolicy()
        self._is_async = False

    def hello(self, value: dict[str, Any], blobs: Sequence[bytes]) -> Reply:
        """Load the application's class, and describe it."""
        logging.getLogger().setLevel(value["level"])
        self._hello = value
        self._worker.config = WorkersConfig(value["config"], self._worker)
        self._poison = PoisonPolicy(
            **{**value["poison"], "exceptions": frozenset(value["poison"]["exceptions"])}
        )
        path = value["task_class"]
        loaded = load_class(path, "task.class")
        check_class(loaded, StreamTask, "task.class", path)
        self._is_async = isinstance(loaded, type) and issubclass(loaded, AsyncStreamTask)
        return {
            "is_async": self._is_async,
            "has_timers": has_own(loaded, "on_timer"),
            "hears_ends": has_own(loaded, "on_end_of_stream"),
        }, ()

    def begin(self, value: Sequence[Any], blobs: Sequence[bytes]) -> Reply:
        """Begin a batch, with another instance unless the task goes on."""
        index, continues = value
        continues = continues and index in self._open
        if not continues:
            task = self._open[index] = Hosted(self._worker, index, self._hello, self._events)
            task.begin_batch(continues=False)
            self._events.finish(task.instance.init(task.context))
        else:
            self._open[index].begin_batch(continues=True)
        return self._open[index].standing(), ()

    def process(self, value: Sequence[Any], blobs: Sequence[bytes]) -> Reply:
        """Process records of an SSP; how many were, and which of them are set aside."""
        index, ssp_index, headers = value
        task, ssp = self._open[index], SystemStreamPartition(*self._hello["ssps"][ssp_index])
        serdes = self._serdes.get(ssp_index)
        if serdes is None:
            described = self._hello["inputs"][str(ssp_index)]
            serdes = self._serdes[ssp_index] = self._worker.serdes(described)
        columns: list[Any] = [_numbers(blobs[0]), unpack_column(blobs[2:5]), unpack_column(blobs[5:8])]
        columns.append(_numbers(blobs[1]))
        of_rows = repeat(()) if headers is None else [_headers(one) for one in headers]
        if self._hello["is_guarded"]:
            done, aside = self._process_guarded(task, ssp, serdes, columns, of_rows)
        else:
            columns[1] = values_of(columns[1], serdes.key, has_nulls=bool(blobs[4]))
            columns[2] = values_of(columns[2], serdes.message, has_nulls=bool(blobs[7]))
            done, aside = self._process_all(task, ssp, columns, of_rows), []
        task.collector.settle()
        return [done, aside, *task.standing()], ()

    def _process_all(self, task: Hosted, ssp: SystemStreamPartition, columns: Any, headers: Any) -> int:
        offsets, keys, messages, times = columns
        left = iter(list(map(str, offsets)))
        fields = zip(repeat(ssp), left, keys, messages, times, headers, strict=False)
        process: Callable[..., object] = task.instance.process
        if self._is_async:
            process = self._finished(process)
        try:
            call_for_each(fields, process, task.collector, task.control)
        except Exception as error:  # noqa: BLE001 - the application's code; its worker raises it again
            # the iterator has given exactly the offsets up to the message in hand, also when a serde refused it
            raise FailedAt(len(offsets) - length_hint(left) - 1, error) from None
        return len(offsets) - length_hint(left)

    def _finished(self, process: Callable[..., Any]) -> Callable[..., object]:
        timeout_s = self._hello["message_s"]
        return lambda *arguments: self._events.finish(process(*arguments), timeout_s)

    def _process_guarded(
        self, task: Hosted, ssp: Any, serdes: StreamSerdes, columns: Any, headers: Any
    ) -> Any:
        aside = []
        for row, (offset, key, value, time_ms, of_row) in enumerate(zip(*columns, headers, strict=False)):
            task.begin_message()
            task.collector.timestamp_ms = time_ms
            is_read = False
            try:
                read = (ssp, str(offset), serdes.key.from_bytes(key), serdes.message.from_bytes(value))
                envelope = IncomingMessageEnvelope(*read, time_ms, of_row)
                is_read = True
                self._events.finish(task.instance.process(envelope, task.collector, task.control))
            except Exception as error:  # noqa: BLE001 - whatever the application's code raises is the poison
                serializing = task.collector.is_serializing
                covers = self._poison.covers(error, deserializing=not is_read, serializing=serializing)
                if is_machines_error(error) or not covers:
                    raise FailedAt(row, error) from None
                task.undo_message()
                aside.append([row, repr(error)])
            if task.control.wants_commit:
                return row + 1, aside
        return len(columns[0]), aside

    def window(self, value: int, blobs: Sequence[bytes]) -> Reply:
        """Call `window`."""
        task = self._open[value]
        self._events.finish(task.instance.window(task.collector, task.control))
        return task.standing(), ()

    def end(self, value: int, blobs: Sequence[bytes]) -> Reply:
        """Call `on_end_of_stream`."""
        task = self._open[value]
        self._events.finish(task.instance.on_end_of_stream(task.collector, task.control))
        return task.standing(), ()

    def timers(self, value: Sequence[int], blobs: Sequence[bytes]) -> Reply:
        """Call `on_timer` for each key that is due; how many were."""
        task = self._open[value[0]]
        return [task.call_timers(value[1]), *task.standing()], ()

    def take(self, value: int, blobs: Sequence[bytes]) -> Reply:
        """Hand over what the task made of the batch."""
        return self._open[value].take()

    def drop(self, value: int, blobs: Sequence[bytes]) -> Reply:
        """Forget a task whose attempt failed."""
        self._open.pop(value, None)
        return None, ()

    def close(self, value: int, blobs: Sequence[bytes]) -> Reply:
        """Let a task's instance close."""
        task = self._open.pop(value, None)
        if task is not None:
            self._events.finish(task.instance.close())
        return None, ()


class FailedAt(Exception):
    """The application's error at this row."""

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(row, error)
        self.row = row
        self.error = error


def _numbers(blob: bytes) -> array[int]:
    numbers = array("q")
    numbers.frombytes(blob)
    return numbers


def _headers(given: Any) -> Any:
    return [(name, None if value is None else bytes.fromhex(value)) for name, value in given or ()]


class _ToWorker(logging.Handler):
    """Log records as lines that the worker takes for its own log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        line = _encode_log([record.levelno, record.name, self.format(record)])
        os.write(2, f"{LOG_MARK}{line}\n".encode())


def serve(reads: int, writes: int) -> None:
    """Do what the worker asks until its end of the pipe is closed."""
    pipe = Pipe(reads, writes)
    os.register_at_fork(after_in_child=pipe.abandon)
    logging.getLogger().addHandler(_ToWorker())
    application = Application(pipe)
    pipe.send("ready", sys.version.split()[0])
    while True:
        try:
            verb, value, blobs = pipe.receive()
        except EOFError:
            return
        try:
            answer, made = getattr(application, verb)(value, blobs)
        except FailedAt as error:
            _fail(pipe, error.error, error.row)
        except Exception as error:  # noqa: BLE001 - the application's code; its worker raises it again
            _fail(pipe, error, None)
        else:
            pipe.send("done", answer, made)


def _fail(pipe: Pipe, error: BaseException, row: int | None) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"{LOG_MARK}\n".encode())
    pipe.send("failed", {"row": row, **describe_error(error)})
