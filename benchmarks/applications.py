"""The work that is measured, once as a grete application and once by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import grete

SCHEMA = "n long, carrier string, delay int, pad string"


class PassThrough(grete.StreamTask):
    """JSON in, one field added, JSON out."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        message = envelope.message
        message["seen"] = True
        collector.send("local.out", message, key=envelope.key)


class Count(grete.StreamTask):
    """A counter per key, one output per record."""

    def init(self, context: grete.TaskContext) -> None:
        self._counts = context.store("counts")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        count = (self._counts.get(envelope.key) or 0) + 1
        self._counts.put(envelope.key, count)
        collector.send("local.out", {"key": envelope.key, "count": count}, key=envelope.key)


class Aggregate(grete.DataFramePipeline):
    """Count, mean and maximum per carrier."""

    output_mode = "update"
    output = "local.aggregates"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return aggregate(inputs["local.in"])


def aggregate(records: DataFrame) -> DataFrame:
    """The same query for both sides."""
    parsed = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("r")).select("r.*")
    return parsed.groupBy(F.col("carrier").alias("key")).agg(
        F.count(F.lit(1)).alias("records"), F.avg("delay").alias("mean"), F.max("delay").alias("max")
    )


def pass_through_by_hand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The per-record loop that people write into mapInArrow."""
    for batch in batches:
        keys, values = batch.column("key"), []
        for value in batch.column("value").to_pylist():
            message = orjson.loads(value)
            message["seen"] = True
            values.append(orjson.dumps(message))
        yield pa.RecordBatch.from_arrays([keys, pa.array(values, pa.binary())], names=["key", "value"])


class CountByHand(StatefulProcessor):
    """The same counter in Spark's own state, one output per record."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        import pandas as pd

        count = self._count.get()[0] if self._count.exists() else 0
        for frame in rows:
            counts = list(range(count + 1, count + len(frame) + 1))
            count += len(frame)
            yield pd.DataFrame({"key": [key[0]] * len(counts), "count": counts})
        self._count.update((count,))

    def close(self) -> None:
        pass
