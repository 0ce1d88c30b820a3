"""The embedded system as a Spark streaming source. What it reads is decided in `grete.tasks.read_plan`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from grete.arrow import np, pa
from grete.clock import Clock, SystemClock
from grete.config.settings import Settings
from grete.model.ids import SystemStreamPartition
from grete.spark.pipeline import columns_used
from grete.spark.session.running_context import make_active
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.records import sparse
from grete.tasks.ranges import SourceOffsets, TaskGroup
from grete.tasks.read_plan import (
    ReadPlan,
    SourceOptions,
)

FORMAT = "grete_local"
RECORD_LAYOUT = "stream string, partition int, offset long, key binary, value binary, timestamp timestamp"
_TYPES = {
    "stream": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ROWS_PER_BATCH = 20_000
_registered: WeakSet[SparkSession] = WeakSet()
"""Sessions that know the format: Spark warns where it is registered twice."""


def read_stream(
    spark: SparkSession, options: SourceOptions, also: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """A streaming DataFrame over exactly these SSPs from exactly these offsets; `also` stays among its options."""
    make_active(spark)  # Spark asks the thread's session whether a format is known
    if spark not in _registered:
        spark.dataSource.register(LocalSource)
        _registered.add(spark)
    return spark.readStream.format(FORMAT).options(spec=options.to_json(), **also).load()


class LocalSource(DataSource):
    """Spark's entry to the embedded system."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._spec = SourceOptions.from_json(options["spec"])
        self._used = options.get(columns_used.USED)

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return FORMAT

    def schema(self) -> str:
        """See DataSource."""
        return RECORD_LAYOUT

    def streamReader(self, schema: StructType) -> LocalReader:
        """See DataSource."""
        [stream] = {str(SystemStreamPartition.parse(ssp).system_stream) for ssp in self._spec.ssps}
        used = None if self._used is None else columns_used.read(Path(self._used), stream)
        return LocalReader(self._spec, frozenset(_TYPES) if used is None else used)


class TaskRanges(InputPartition):
    """One Spark partition: tasks with their ranges."""

    value: TaskGroup


class LocalReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors."""

    def __init__(self, spec: SourceOptions, used: Set[str] = frozenset(_TYPES)) -> None:
        """Columns that are not `used` are null."""
        self._spec = spec
        self._used = used
        self._opened: ReadPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    # --- on the driver ---

    @property
    def _plan(self) -> ReadPlan:
        if self._opened is None:
            clock = SystemClock()
            self._opened = ReadPlan(self._spec, self._open(clock), clock)
        return self._opened

    def _open(self, clock: Clock) -> System:
        return open_system(Settings.of(self._spec.config), self._spec.system, Path(self._spec.home), clock)

    def initialOffset(self) -> dict[str, Any]:
        """See DataSourceStreamReader. Offsets are documents of `SourceOffsets`."""
        return self._plan.initial().to_document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """See DataSourceStreamReader."""
        return ReadMaxRows(self._spec.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """See SupportsTriggerAvailableNow."""
        self._plan.stop_at_the_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        rows = None if isinstance(limit, ReadAllAvailable) else self._spec.max_records
        return self._plan.next(self._offsets(start), rows=rows).to_document()

    def reportLatestOffset(self) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        return self._plan.end().to_document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See DataSourceStreamReader. Nothing for StreamTasks: the driver hands out what they read."""
        if self._spec.tasks is not None:
            return []
        groups = self._spec.groups(self._offsets(start), self._offsets(end))
        return [TaskRanges(group) for group in groups.values()]

    def _offsets(self, document: dict[str, Any]) -> SourceOffsets:
        """Spark's, with those of partitions that were not there when it wrote them."""
        known = SourceOffsets.from_document(document)
        return SourceOffsets({**self._spec.starting_offsets, **known.next_offsets}, known.tick)

    # --- on the executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceStreamReader."""
        assert isinstance(partition, TaskRanges)
        system = self._open(SystemClock())
        try:
            yield from _read_records(self._spec, self._used, system, partition.value)
        finally:
            system.close()


def _read_records(
    spec: SourceOptions, used: Set[str], system: System, group: TaskGroup
) -> Iterator[pa.RecordBatch]:
    """The rows of one Spark partition of a DataFrame pipeline."""
    ssps = [SystemStreamPartition.parse(text) for text in spec.ssps]
    for _, ranges in group:
        for part in ranges:
            ssp = ssps[part.ssp]
            for first, found in system.read(ssp.stream, ssp.partition, part.start, part.end):
                batch = sparse(first, found)
                for row in range(0, batch.num_rows, _ROWS_PER_BATCH):
                    yield _record_batch(ssp, batch.slice(row, _ROWS_PER_BATCH), used)


def _record_batch(ssp: SystemStreamPartition, batch: pa.RecordBatch, used: Set[str]) -> pa.RecordBatch:
    rows = batch.num_rows
    made: dict[str, Callable[[], pa.Array]] = {
        "stream": lambda: pa.repeat(str(ssp.system_stream), rows),
        "partition": lambda: pa.array(np.full(rows, ssp.partition, dtype=np.int32)),
        "offset": lambda: batch.column(3),
        "key": lambda: batch.column(0),
        "value": lambda: batch.column(1),
        "timestamp": lambda: pa.array(batch.column(2).to_numpy() * 1000).cast(_TYPES["timestamp"]),
    }
    columns = [made[name]() if name in used else pa.nulls(rows, type_) for name, type_ in _TYPES.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(_TYPES))
