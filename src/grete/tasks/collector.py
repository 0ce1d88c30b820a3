"""The messages that a task sends, gathered by stream partition and packed for the commit."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from grete.api import Serde
from grete.application.collector import GivenHeaders, check_size, encoded
from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import Headers
from grete.serdes import stream_serdes
from grete.systems.outputs import OutputSystems
from grete.systems.partitioner import Partitioner
from grete.systems.records import join, records
from grete.tasks.faults import FILE_ERRORS, file_error

T = TypeVar("T")
_PARTITION_CACHE_LIMIT = 200_000
_SETTLE = 1_000
"""So many records become columns, which take half the memory of the objects."""


class _Buffer:
    """Records of one stream partition: the newest as lists, older ones as columns."""

    __slots__ = ("headers", "keys", "settled", "timestamps_ms", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ms: list[int] = []
        self.headers: dict[int, Headers] = {}
        """By row; most records have none."""
        self.settled: list[pa.RecordBatch] = []

    def settle(self, at_least: int) -> None:
        """Turn the lists into columns when they are that long."""
        if len(self.keys) >= at_least:
            headers = [self.headers.get(row) for row in range(len(self.keys))] if self.headers else None
            self.settled.append(records(self.keys, self.values, self.timestamps_ms, headers))
            self.cut(0)

    def cut(self, length: int) -> None:
        """Take back what the lists hold beyond `length`."""
        for column in (self.keys, self.values, self.timestamps_ms):
            del column[length:]
        if self.headers:
            self.headers = {row: of_row for row, of_row in self.headers.items() if row < length}


class StreamFacts:
    """Facts of streams for collectors, read once in a worker: partitions are only ever added."""

    def __init__(self, outputs: OutputSystems) -> None:
        self._outputs = outputs
        self._known: dict[str, tuple[int, int]] = {}

    def partitions(self, stream: str) -> int:
        """How many partitions the stream has."""
        return self._of(stream)[0]

    def largest(self, stream: str) -> int:
        """See System.largest_record."""
        return self._of(stream)[1]

    def _of(self, stream: str) -> tuple[int, int]:
        found = self._known.get(stream)
        if found is None:
            system, name = self._outputs.of(stream)
            found = self._known[stream] = (system.partition_count(name), system.largest_record(name))
        return found

    def partitioner(self, stream: SystemStream, key_serde: Serde) -> Partitioner:
        """See System.partitioner."""
        return self._outputs.written(stream)[0].partitioner(stream, key_serde)


class _Output:
    """One output stream as one task sees it."""

    def __init__(self, stream: SystemStream, name: str, settings: Settings, facts: StreamFacts) -> None:
        """`name` is what the container's system calls the stream."""
        self.name = name
        serdes = stream_serdes(stream, settings)
        self.key_to_bytes = serdes.key.to_bytes
        self.message_to_bytes = serdes.message.to_bytes
        self.partitions = facts.partitions(name)
        self.largest = facts.largest(name)
        self.buffers: dict[int, _Buffer] = {}
        self._partitioner = facts.partitioner(stream, serdes.key)
        self.buffer_of: dict[bytes | None, _Buffer] = {}
        """By key; remembered, because hashing in Python costs more than the rest of a send."""

    def find(self, key: bytes | None, task_index: int) -> _Buffer:
        """The buffer of a key's partition, of the task's own one for None; remembered from now on."""
        if len(self.buffer_of) >= _PARTITION_CACHE_LIMIT:
            self.buffer_of.clear()
        partition = task_index % self.partitions if key is None else self._partitioner(key, self.partitions)
        buffer = self.buffer_of[key] = self.buffer(partition)
        return buffer

    def buffer(self, partition: int) -> _Buffer:
        """The partition's buffer, made now when it is new."""
        found = self.buffers.get(partition)
        if found is None:
            found = self.buffers[partition] = _Buffer()
        return found


def opened_output(
    stream: str, settings: Settings, default_system: str, make: Callable[[SystemStream, str], T]
) -> T:
    """An output as `make` opens it, given the stream and the name that the container's system has for it.

    Raises:
        StreamNotFound: the job's tasks do not write there.
        LogError: its files cannot be read.
    """
    parsed = SystemStream.parse(stream)
    name = settings.system(default_system).name_of(parsed)
    if name is None:
        raise StreamNotFound(
            f"cannot send to {stream}: this job's tasks write to system {default_system!r}, where outputs, state "
            f"and checkpoints commit in one transaction, and to what task.outputs names"
        )
    try:
        return make(parsed, name)
    except FILE_ERRORS as error:
        raise file_error(f"the files of stream {stream}", error) from error


class Collector:
    """Implements `grete.MessageCollector` for one task. Used by one thread."""

    def __init__(
        self,
        settings: Settings,
        default_system: str,
        task_index: int,
        facts: StreamFacts,
    ) -> None:
        self._settings = settings
        self._system = default_system
        self._task_index = task_index
        self._facts = facts
        self._outputs: dict[str, _Output] = {}
        self._marks: list[tuple[_Buffer, int]] | None = None
        self.is_serializing = False
        self.timestamp_ms = 0

    def send(
        self,
        stream: str,
        message: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> None:
        """See grete.MessageCollector."""
        output = self._outputs.get(stream)
        if output is None:
            output = self._open(stream)
        self.is_serializing = True  # and stays so when a serde refuses
        key_bytes = output.key_to_bytes(key)
        value = output.message_to_bytes(message)
        kept = encoded(headers) if headers else None
        self.is_serializing = False
        if value is not None and len(value) > output.largest:
            check_size(value, output.largest, stream)
        if partition is None:
            buffer = output.buffer_of.get(key_bytes)
            if buffer is None:
                buffer = output.find(key_bytes, self._task_index)
        elif 0 <= partition < output.partitions:
            buffer = output.buffer(partition)
        else:
            raise ValueError(f"{stream} has partitions 0 to {output.partitions - 1}, not {partition}")
        if self._marks is not None:
            self._marks.append((buffer, len(buffer.keys)))
        if kept:
            buffer.headers[len(buffer.keys)] = kept
        buffer.keys.append(key_bytes)
        buffer.values.append(value)
        buffer.timestamps_ms.append(self.timestamp_ms if timestamp_ms is None else timestamp_ms)

    def _open(self, stream: str) -> _Output:
        def made(parsed: SystemStream, name: str) -> _Output:
            return _Output(parsed, name, self._settings, self._facts)

        output = self._outputs[stream] = opened_output(stream, self._settings, self._system, made)
        return output

    def begin_message(self) -> None:
        """From here on `undo_message` can take back what is sent."""
        self.is_serializing = False
        self._marks = []

    def undo_message(self) -> None:
        """Take back what was sent since `begin_message`."""
        for buffer, length in reversed(self._marks or []):
            buffer.cut(length)
        self._marks = None

    def settle(self) -> None:
        """Between messages, now and then: what was sent is final, and is kept in less memory."""
        self._marks = None
        for output in self._outputs.values():
            for buffer in output.buffers.values():
                buffer.settle(_SETTLE)

    def take(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Every (stream, partition, records) gathered; the collector is empty afterwards."""
        for output in self._outputs.values():
            for partition, buffer in sorted(output.buffers.items()):
                buffer.settle(1)
                settled, buffer.settled = buffer.settled, []
                if settled:
                    yield output.name, partition, join(settled)


def dead_letter(
    task: str,
    ssp: SystemStreamPartition,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    error: str,
    headers: Headers = (),
) -> bytes:
    """The record written for a message that could not be processed: everything to repair and replay it."""
    document: dict[str, Any] = {
        "task": task,
        "ssp": str(ssp),
        "offset": str(offset),
        "error": error,
        "key_base64": _base64(key),
        "value_base64": _base64(value),
    }
    if headers:
        document["headers_base64"] = [(name, _base64(of_name)) for name, of_name in headers]
    return orjson.dumps(document)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
