"""The embedded system as a Spark streaming source: exact stream partitions, exact starting offsets, bounded batches.

The source's offset, as Spark writes it into its log: `{"offsets": {"system.stream.partition": next offset},
"tick": n}`. `tick` advances every `tick_ms`, so that a batch runs for StreamTask.window even without messages.

One Spark partition per task: the source plans the ranges of all of a task's SSPs into one input partition, one SSP
after the other, so that no shuffle is needed however many streams a task reads. A broadcast SSP is planned once for
every task that reads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from grete.clock import SystemClock
from grete.model.ids import SystemStreamPartition
from grete.systems.local import LocalSystem

FORMAT = "grete_local"
TASK_LAYOUT = "task int, ssp int, offset long, key binary, value binary, timestamp_ms long"
"""For StreamTasks: `task` and `ssp` are indexes; ssp -1 marks a tick."""
RECORD_LAYOUT = "stream string, partition int, offset long, key binary, value binary, timestamp timestamp"
"""For DataFrame pipelines."""

_ROWS_PER_BATCH = 20_000
_TICK_SSP = -1


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a container reads. `tasks` lists, per task index, indexes into `ssps`; None plans one partition an SSP.

    `partitions_at_most`: with more tasks than this, several whole tasks share a Spark partition one after another.
    `bootstrap` streams are read to the end they had at the start before any other stream moves.
    """

    directory: str
    ssps: tuple[str, ...]
    starting_offsets: Mapping[str, int]
    tasks: tuple[tuple[int, ...], ...] | None
    max_records: int
    tick_ms: int = 0
    partitions_at_most: int = 64
    bootstrap: tuple[str, ...] = ()

    def to_json(self) -> str:
        """As one data source option."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SourceOptions:
        """Back from the option."""
        document = json.loads(text)
        tasks = document.pop("tasks")
        return cls(
            **document | {"ssps": tuple(document["ssps"]), "bootstrap": tuple(document["bootstrap"])},
            tasks=None if tasks is None else tuple(tuple(task) for task in tasks),
        )


def read_stream(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """A streaming DataFrame over exactly these SSPs from exactly these offsets."""
    spark.dataSource.register(LocalSource)
    return spark.readStream.format(FORMAT).option("spec", options.to_json()).load()


class LocalSource(DataSource):
    """Spark's entry to the embedded system."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._spec = SourceOptions.from_json(options["spec"])

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return FORMAT

    def schema(self) -> str:
        """See DataSource."""
        return RECORD_LAYOUT if self._spec.tasks is None else TASK_LAYOUT

    def streamReader(self, schema: StructType) -> LocalReader:
        """See DataSource."""
        return LocalReader(self._spec)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets start <= offset < end of one SSP, by its index."""

    ssp: int
    start: int
    end: int


class TaskRanges(InputPartition):
    """One Spark partition: tasks with their ranges, and whether a tick is due for them."""

    def __init__(self, tasks: list[tuple[int, list[Range]]], tick: bool) -> None:
        super().__init__(tasks)
        self.tick = tick


class LocalReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors."""

    def __init__(self, spec: SourceOptions) -> None:
        self._spec = spec
        self._ssps = [SystemStreamPartition.parse(text) for text in spec.ssps]
        self._target: dict[str, Any] | None = None
        self._bootstrap_target: dict[str, int] | None = None
        self._system: LocalSystem | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_system": None}

    def _open(self) -> LocalSystem:
        if self._system is None:
            self._system = LocalSystem(Path(self._spec.directory), SystemClock())
        return self._system

    # --- on the driver ---

    def initialOffset(self) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        return {"offsets": dict(self._spec.starting_offsets), "tick": self._tick()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """See DataSourceStreamReader."""
        return ReadMaxRows(self._spec.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """See SupportsTriggerAvailableNow."""
        self._target = {"offsets": self._upcoming(), "tick": self._tick()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        target = self._target or {"offsets": self._upcoming(), "tick": self._tick()}
        available = {
            ssp: max(0, target["offsets"].get(ssp, 0) - start["offsets"][ssp]) for ssp in self._spec.ssps
        }
        available = self._bootstrap_first(start["offsets"], available)
        rows = sum(available.values()) if isinstance(limit, ReadAllAvailable) else self._spec.max_records
        taken = share_out(available, rows)
        return {
            "offsets": {ssp: start["offsets"][ssp] + taken[ssp] for ssp in self._spec.ssps},
            "tick": max(start.get("tick", 0), target["tick"]),
        }

    def reportLatestOffset(self) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        return {"offsets": self._upcoming(), "tick": self._tick()}

    def _tick(self) -> int:
        return time.time_ns() // 1_000_000 // self._spec.tick_ms if self._spec.tick_ms > 0 else 0

    def _upcoming(self) -> dict[str, int]:
        system = self._open()
        by_stream = {stream: system.offsets(stream) for stream in {ssp.stream for ssp in self._ssps}}
        return {
            text: int(by_stream[ssp.stream][ssp.partition].upcoming)
            for text, ssp in zip(self._spec.ssps, self._ssps, strict=True)
        }

    def _bootstrap_first(self, start: Mapping[str, int], available: dict[str, int]) -> dict[str, int]:
        """Only bootstrap streams, as long as one of them is behind the end it had when reading began."""
        if not self._spec.bootstrap:
            return available
        first = {
            text
            for text, ssp in zip(self._spec.ssps, self._ssps, strict=True)
            if str(ssp.system_stream) in self._spec.bootstrap
        }
        if self._bootstrap_target is None:
            self._bootstrap_target = {ssp: start[ssp] + available[ssp] for ssp in first}
        behind = {ssp for ssp, end in self._bootstrap_target.items() if start[ssp] < end}
        return (
            {ssp: count if ssp in first else 0 for ssp, count in available.items()} if behind else available
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See DataSourceStreamReader."""
        ranges = [
            Range(index, start["offsets"][ssp], end["offsets"][ssp])
            for index, ssp in enumerate(self._spec.ssps)
        ]
        tick = end.get("tick", 0) != start.get("tick", 0)
        planned = []
        for task, indexes in enumerate(self._spec.tasks or [(i,) for i in range(len(ranges))]):
            own = [ranges[i] for i in indexes if ranges[i].start < ranges[i].end]
            if own or tick:
                planned.append((task, own))
        return [TaskRanges(group, tick) for group in _groups(planned, self._spec.partitions_at_most)]

    # --- on the executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceStreamReader."""
        assert isinstance(partition, TaskRanges)
        system = LocalSystem(Path(self._spec.directory), SystemClock())
        try:
            for task, ranges in partition.value:
                for part in ranges:
                    yield from self._read_range(system, task, part)
                if partition.tick and self._spec.tasks is not None:
                    yield _tick_row(task)
        finally:
            system.close()

    def _read_range(self, system: LocalSystem, task: int, part: Range) -> Iterator[pa.RecordBatch]:
        ssp = self._ssps[part.ssp]
        for first, batch in system.read(ssp.stream, ssp.partition, part.start, part.end):
            for row in range(0, batch.num_rows, _ROWS_PER_BATCH):
                piece = batch.slice(row, _ROWS_PER_BATCH)
                if self._spec.tasks is None:
                    yield _record_batch(ssp, first + row, piece)
                else:
                    yield _task_batch(task, part.ssp, first + row, piece)


def share_out(available: Mapping[str, int], rows: int) -> dict[str, int]:
    """Give every SSP an equal share of `rows`; what one does not need goes to the others. Deterministic."""
    taken = dict.fromkeys(available, 0)
    waiting = sorted(
        (ssp for ssp, count in available.items() if count > 0), key=lambda ssp: (available[ssp], ssp)
    )
    left = rows
    for position, ssp in enumerate(waiting):
        share = left // (len(waiting) - position)
        taken[ssp] = min(available[ssp], share)
        left -= taken[ssp]
    return taken


def _groups(planned: list[Any], at_most: int) -> Iterator[list[Any]]:
    """Split into at most `at_most` consecutive groups of nearly equal length."""
    count = min(len(planned), at_most)
    for i in range(count):
        yield planned[i * len(planned) // count : (i + 1) * len(planned) // count]


def _offsets(first: int, batch: pa.RecordBatch) -> pa.Array:
    if batch.num_columns > 3:
        return batch.column(3)
    return pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))


def _constant(value: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, dtype=np.int32))


def _task_batch(task: int, ssp: int, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            _constant(task, rows),
            _constant(ssp, rows),
            _offsets(first, batch),
            batch.column(0),
            batch.column(1),
            batch.column(2),
        ],
        names=["task", "ssp", "offset", "key", "value", "timestamp_ms"],
    )


def _tick_row(task: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            _constant(task, 1),
            _constant(_TICK_SSP, 1),
            pa.array([0], pa.int64()),
            pa.array([None], pa.binary()),
            pa.array([None], pa.binary()),
            pa.array([0], pa.int64()),
        ],
        names=["task", "ssp", "offset", "key", "value", "timestamp_ms"],
    )


def _record_batch(ssp: SystemStreamPartition, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.num_rows
    micros = pa.array(batch.column(2).to_numpy() * 1000).cast(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(str(ssp.system_stream), rows),
            _constant(ssp.partition, rows),
            _offsets(first, batch),
            batch.column(0),
            batch.column(1),
            micros,
        ],
        names=["stream", "partition", "offset", "key", "value", "timestamp"],
    )
