"""Structured Streaming as a careful hand writes it: mapInArrow over Spark's Kafka connector, a count for each key.

Spark has nothing for state in mapInArrow, so each partition keeps its counts in a file that it reads before a batch
and writes after it: quick, and wrong after a failure. Partitions stay those of the topic, so there is no shuffle.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession


def session(jars: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
        .getOrCreate()
    )


def outputs(batches: Iterator[pa.RecordBatch], work: str, directory: str) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    state = Path(directory) / f"{context.partitionId()}.json"
    counts: dict[str, int] = json.loads(state.read_bytes()) if state.exists() else {}
    for batch in batches:
        keys, values = [], []
        for data in batch.column(0).to_pylist():
            value = orjson.loads(data)
            key = value["key"]
            if work == "count":
                number = counts[key] = counts.get(key, 0) + 1
            else:
                number = value["n"]
            keys.append(key.encode())
            values.append(orjson.dumps({"key": key, "count": number}))
        yield pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    if work == "count":
        state.write_bytes(json.dumps(counts).encode())


def main(bootstrap: str, source: str, target: str, work: str, directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    frame = (
        session(os.environ["BENCH_SPARK_JARS"])
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BENCH_BATCH"])
        .load()
        .select("value")
    )
    mapped = frame.mapInArrow(lambda batches: outputs(batches, work, directory), "key binary, value binary")
    mapped.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", target
    ).option("checkpointLocation", f"{directory}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:6])
