"""The messages that a task sends, gathered by stream partition and packed for the commit."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import orjson

from grete.api import Serde
from grete.application.collector import GatheredOutput, GatheringCollector
from grete.arrow import np, pa
from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import Headers
from grete.serdes import stream_serdes
from grete.systems.outputs import OutputSystems
from grete.systems.placement import Placement
from grete.systems.records import join, records
from grete.tasks.faults import FILE_ERRORS, file_error

T = TypeVar("T")


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

    def placement(self, stream: SystemStream, name: str, key_serde: Serde, task_index: int) -> Placement:
        """Where a task's records of the stream go, which the container's system calls `name`.

        Those without a key go to the task's own partition.
        """
        partitions = self.partitions(name)
        partitioner = self._outputs.written(stream)[0].partitioner(stream, key_serde)
        return Placement(partitions, partitioner, task_index % partitions)


class _Output(GatheredOutput):
    """Its columns are in the partitions that they go to."""

    def __init__(
        self, stream: SystemStream, name: str, settings: Settings, task_index: int, facts: StreamFacts
    ) -> None:
        """`name` is what the container's system calls the stream."""
        serdes = stream_serdes(stream, settings)
        super().__init__(str(stream), serdes, facts.partitions(name), facts.largest(name))
        self.name = name
        self._placement = facts.placement(stream, name, serdes.key, task_index)
        self._settled = Placed()

    def _to_columns(self) -> None:
        rows = range(len(self.keys))
        headers = [self.headers.get(row) for row in rows] if self.headers else None
        batch = records(self.keys, self.values, self.timestamps_ms, headers)
        chosen = np.array(self.chosen_by_row(), np.int32) if self.chosen else None
        self._settled.add(self._placement.split(batch, chosen))

    def take(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Everything gathered; the output is empty afterwards."""
        self.settle(1)
        for partition, batch in self._settled.take():
            yield self.name, partition, batch


class Placed:
    """Records by partition, gathered piece by piece."""

    def __init__(self) -> None:
        self._of: dict[int, list[pa.RecordBatch]] = {}

    def add(self, split: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Take a piece's records."""
        for partition, batch in split:
            self._of.setdefault(partition, []).append(batch)

    def take(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The records of each partition, in their order; empty afterwards."""
        gathered, self._of = self._of, {}
        for partition, batches in sorted(gathered.items()):
            yield partition, join(batches)


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


class Collector(GatheringCollector[_Output]):
    """Of a task whose instance is in this process."""

    def __init__(
        self,
        settings: Settings,
        default_system: str,
        task_index: int,
        facts: StreamFacts,
    ) -> None:
        super().__init__(self._opened, passes_traces=settings.traces.endpoint is not None)
        self._settings = settings
        self._system = default_system
        self._task_index = task_index
        self._facts = facts

    def _opened(self, stream: str) -> _Output:
        def made(parsed: SystemStream, name: str) -> _Output:
            return _Output(parsed, name, self._settings, self._task_index, self._facts)

        return opened_output(stream, self._settings, self._system, made)

    def take(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Every (stream, partition, records) gathered; the collector is empty afterwards."""
        for output in self._outputs.values():
            yield from output.take()


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
