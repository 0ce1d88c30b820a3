"""The application's process: holds the instances of a worker's tasks, and calls them as the worker asks.

The worker sends a request and waits for `done` or `failed`. Meanwhile the process may ask the worker something (see
`questions`), and waits for `answer` or `refused`. The application's prints go to the worker's log, since the pipe has
descriptors of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from grete.api import AsyncStreamTask, IncomingMessageEnvelope, StreamTask
from grete.application.calls import FAILURES, call_for_each, is_machines_error
from grete.application.carried import describe_error
from grete.application.hosted import CallEventLoop, Hosted, Reply
from grete.application.load import check_class, has_own, load_class
from grete.application.pipe import Pipe, unpack_column
from grete.application.pipeline import PipelineThere
from grete.application.plugins import ask
from grete.application.poison import PoisonPolicy
from grete.application.questions import Worker
from grete.application.resolved_config import ResolvedConfig
from grete.application.serdes import StreamSerdes, values_of
from grete.application.side_inputs import processor_of
from grete.model.ids import SystemStreamPartition

LOG_MARK = "\x1e"
"""Begins a line that is a log record, as JSON [level, logger, text]."""
_encode_log = json.JSONEncoder().encode


class ApplicationServer:
    """The application, as its worker calls it."""

    def __init__(self, pipe: Pipe) -> None:
        self._worker = Worker(pipe)
        self._events = CallEventLoop()
        self._hello: dict[str, Any] = {}
        self._open: dict[int, Hosted] = {}
        self._serdes: dict[int, StreamSerdes] = {}
        self._poison = PoisonPolicy()
        self._is_async = False
        self._pipeline: PipelineThere | None = None

    def ask(self, value: dict[str, Any], blobs: Sequence[bytes]) -> Reply:
        """Let another class of the application answer."""
        _set_levels(value.pop("levels"))
        return ask(**value), ()

    def pipeline(self, value: dict[str, Any], blobs: Sequence[bytes]) -> Reply:
        """Load the application's pipeline, and describe it."""
        _set_levels(value["levels"])
        config = ResolvedConfig(value["config"], self._worker.resolve)
        self._pipeline = PipelineThere(value["path"], config)
        return self._pipeline.describe(), ()

    def build(self, value: dict[str, Any], blobs: Sequence[bytes]) -> Reply:
        """Let the pipeline build; the views of its outputs."""
        assert self._pipeline is not None, "it was loaded"
        return self._pipeline.build(**value), ()

    def hello(self, value: dict[str, Any], blobs: Sequence[bytes]) -> Reply:
        """Load the application's class, and describe it."""
        _set_levels(value["levels"])
        self._hello = value
        self._worker.config = ResolvedConfig(value["config"], self._worker.resolve)
        self._poison = PoisonPolicy(
            **{**value["poison"], "exceptions": frozenset(value["poison"]["exceptions"])}
        )
        path = value["task_class"]
        loaded = load_class(path, "task.class")
        check_class(loaded, StreamTask, "task.class", path)
        for store, (_, processor) in value["side_inputs"].items():
            processor_of(store, processor)
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
            task.side_inputs.init(task.context)
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
        process: Callable[..., object] = task.side_inputs.receiver(ssp, task.instance.process)
        if self._is_async:
            process = self._finished(process)
        try:
            call_for_each(fields, task.collector.passing_traces(process), task.collector, task.control)
        except FAILURES as error:
            # the iterator has given exactly the offsets up to the message in hand, also when a serde refused it
            raise FailedAt(len(offsets) - length_hint(left) - 1, error) from None
        return len(offsets) - length_hint(left)

    def _finished(self, process: Callable[..., Any]) -> Callable[..., object]:
        timeout_s = self._hello["message_s"]
        return lambda *arguments: self._events.finish(process(*arguments), timeout_s)

    def _process_guarded(
        self, task: Hosted, ssp: Any, serdes: StreamSerdes, columns: Any, headers: Any
    ) -> Any:
        aside, process = [], task.side_inputs.receiver(ssp, task.instance.process)
        for row, (offset, key, value, time_ms, of_row) in enumerate(zip(*columns, headers, strict=False)):
            task.begin_message()
            task.collector.timestamp_ms, task.collector.in_hand = time_ms, of_row
            is_read = False
            try:
                read = (ssp, str(offset), serdes.key.from_bytes(key), serdes.message.from_bytes(value))
                envelope = IncomingMessageEnvelope(*read, time_ms, of_row)
                is_read = True
                self._events.finish(process(envelope, task.collector, task.control))
            except FAILURES as error:
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

    def __init__(self, row: int, error: BaseException) -> None:
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


def _set_levels(levels: Mapping[str, int | str]) -> None:
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


def serve(reads: int, writes: int) -> None:
    """Do what the worker asks until its end of the pipe is closed."""
    pipe = Pipe(reads, writes)
    os.register_at_fork(after_in_child=pipe.abandon)
    logging.getLogger().addHandler(_ToWorker())
    application = ApplicationServer(pipe)
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
        except FAILURES as error:
            _fail(pipe, error, None)
        else:
            pipe.send("done", answer, made)


def _fail(pipe: Pipe, error: BaseException, row: int | None) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"{LOG_MARK}\n".encode())
    pipe.send("failed", {"row": row, **describe_error(error)})
