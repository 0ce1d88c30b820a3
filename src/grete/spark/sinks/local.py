"""An output on the embedded system: its rows are part of the transaction that writes the checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame

from grete.api import Batch
from grete.arrow import pa
from grete.failpoints import failpoint
from grete.model.ids import SystemStream
from grete.spark.sinks.rows import key_and_value
from grete.spark.sinks.staged import LAYOUT, StagedRows, StagedSegment, cleared, stage
from grete.systems.commit_group import SegmentWrite


class LocalSink:
    """Rows in the order of Spark's partitions. They are packed by Spark's workers, see `staged`."""

    def __init__(
        self, stream: SystemStream, partitions: int, folder: Path, now_ms: Callable[[], int]
    ) -> None:
        """`folder` is this incarnation's own, for this stream."""
        self._stream = stream
        self._partitions = partitions
        self._folder = folder
        self._now_ms = now_ms

    def write(self, rows: DataFrame, batch: Batch) -> Iterable[SegmentWrite]:
        """Compute and pack the rows; they are written with the checkpoints.

        Raises:
            StorageFull, as Spark gives a worker's error: there is no room for them.
        """
        folder, partitions, now_ms = str(cleared(self._folder)), self._partitions, self._now_ms()

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return stage(batches, folder, partitions, now_ms)

        described = key_and_value(rows).mapInArrow(packed, LAYOUT).collect()
        failpoint("sink.staged")
        return StagedRows(
            self._stream.stream,
            [StagedSegment(one.partition, one["count"], one.size, one.data, one.file) for one in described],
        )

    def close(self) -> None:
        """Nothing is held; the next incarnation clears what is left."""
