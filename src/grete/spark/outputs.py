"""What a task sends, gathered by stream partition and packed for the commit."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from grete.errors import StreamNotFound
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.serdes import stream_serdes

Buffer = tuple[list[bytes | None], list[bytes | None], list[int]]
PartitionCount = Callable[[str], int]
Partitioner = Callable[[bytes, int], int]

_PARTITION_CACHE_LIMIT = 200_000


class _Output:
    """One output stream as one task sees it."""

    def __init__(
        self, stream: SystemStream, config: Mapping[str, str], partitions: int, partitioner: Partitioner
    ) -> None:
        serdes = stream_serdes(stream, config)
        self.key_to_bytes = serdes.key.to_bytes
        self.message_to_bytes = serdes.message.to_bytes
        self.partitions = partitions
        self.buffers: dict[int, Buffer] = {}
        self._partitioner = partitioner
        self._partition_of: dict[bytes, int] = {}

    def partition_of(self, key: bytes) -> int:
        """The key's partition; remembered, because hashing in Python costs more than the rest of a send."""
        partition = self._partition_of.get(key)
        if partition is None:
            if len(self._partition_of) >= _PARTITION_CACHE_LIMIT:
                self._partition_of.clear()
            partition = self._partition_of[key] = self._partitioner(key, self.partitions)
        return partition

    def buffer(self, partition: int) -> Buffer:
        found = self.buffers.get(partition)
        if found is None:
            found = self.buffers[partition] = ([], [], [])
        return found


class Collector:
    """Implements `grete.MessageCollector` for one task. Used by one thread."""

    def __init__(
        self,
        config: Mapping[str, str],
        default_system: str,
        task_index: int,
        partition_count: PartitionCount,
        partitioner: Partitioner,
    ) -> None:
        self._config = config
        self._system = default_system
        self._task_index = task_index
        self._partition_count = partition_count
        self._partitioner = partitioner
        self._outputs: dict[str, _Output] = {}
        self._marks: list[tuple[Buffer, int]] | None = None
        self.timestamp_ms = 0

    def send(
        self,
        stream: str,
        message: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """See grete.MessageCollector."""
        output = self._outputs.get(stream)
        if output is None:
            output = self._open(stream)
        key_bytes = output.key_to_bytes(key)
        value = output.message_to_bytes(message)
        if partition is None:
            own = self._task_index % output.partitions
            partition = own if key_bytes is None else output.partition_of(key_bytes)
        elif not 0 <= partition < output.partitions:
            raise StreamNotFound(f"{stream} has partitions 0 to {output.partitions - 1}, not {partition}")
        buffer = output.buffers.get(partition)
        if buffer is None:
            buffer = output.buffer(partition)
        if self._marks is not None:
            self._marks.append((buffer, len(buffer[0])))
        buffer[0].append(key_bytes)
        buffer[1].append(value)
        buffer[2].append(self.timestamp_ms if timestamp_ms is None else timestamp_ms)

    def _open(self, stream: str) -> _Output:
        parsed = SystemStream.parse(stream)
        if parsed.system != self._system:
            raise StreamNotFound(
                f"cannot send to {stream}: this job's tasks write to system {self._system!r} only, since outputs, "
                f"state and checkpoints commit in one transaction of it"
            )
        partitions = self._partition_count(parsed.stream)
        output = self._outputs[stream] = _Output(parsed, self._config, partitions, self._partitioner)
        return output

    def begin_message(self) -> None:
        """From here on `undo_message` can take back what is sent."""
        self._marks = []

    def undo_message(self) -> None:
        """Take back what was sent since `begin_message`."""
        for buffer, length in reversed(self._marks or []):
            for column in buffer:
                del column[length:]
        self._marks = None

    def take(self) -> Iterator[tuple[str, int, Buffer]]:
        """Every (stream, partition, records) gathered; the collector is empty afterwards."""
        for name, output in self._outputs.items():
            buffers, output.buffers = output.buffers, {}
            for partition, buffer in sorted(buffers.items()):
                if buffer[0]:
                    yield SystemStream.parse(name).stream, partition, buffer


def dead_letter(
    task: str, ssp: SystemStreamPartition, offset: int, key: bytes | None, value: bytes | None, error: str
) -> bytes:
    """The record written for a message that could not be processed: everything to repair and replay it."""
    document = {
        "task": task,
        "ssp": str(ssp),
        "offset": str(offset),
        "error": error,
        "key_base64": None if key is None else base64.b64encode(key).decode(),
        "value_base64": None if value is None else base64.b64encode(value).decode(),
    }
    return orjson.dumps(document)
