"""How a StreamTask's records come from Kafka into Python: through Spark's connector, or as ranges that workers read.

`python -m benchmarks.kafka_read [RECORDS]` starts a broker and one Spark session, and lets both ways read the same
offsets of one topic of two partitions, in turns: each record becomes what the task runner works on, a Python tuple of
offset, key, value and time. See docs/decisions.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import RESULTS
from benchmarks.contestants import CONNECTOR_JARS
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.model.streams import StreamSpec
from grete.systems.base import Message, SystemContext
from grete.systems.kafka.system import open_kafka_system
from grete.testing.kafka_broker import KafkaCluster

STREAM, PARTITIONS, ROUNDS = "read", 2, 5
_ROWS = "rows long, bytes long"


def _config(bootstrap: str) -> dict[str, str]:
    return {
        "systems.kafka.default.stream.replication.factor": "1",
        "systems.kafka.producer.bootstrap.servers": bootstrap,
        "systems.kafka.samza.partitioner": "kafka",
        "task.checkpoint.replication.factor": "1",
    }


def _fill(config: dict[str, str], records: int) -> dict[int, tuple[int, int]]:
    """The offsets that both ways read."""
    body = json.dumps({"carrier": "UA", "delay": 12, "tail": "N14228", "from": "EWR", "to": "IAH"}).encode()
    now_ms = SystemClock().wall_ms()  # older than its retention, a topic forgets at once
    context = SystemContext(Settings.of(config), "kafka", Path(), SystemClock())
    with closing(open_kafka_system(context)) as system:
        system.create_stream(StreamSpec(STREAM, PARTITIONS))
        for start in range(0, records, 50_000):
            system.append(
                STREAM,
                [
                    Message(b"k%d" % (i % 1000), body, now_ms, i % PARTITIONS)
                    for i in range(start, min(start + 50_000, records))
                ],
            )
        return {p: (int(o.oldest or 0), int(o.upcoming)) for p, o in system.offsets(STREAM).items()}


def _count(rows: int, size: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": [rows], "bytes": [size]})


def _through_spark(spark: SparkSession, bootstrap: str, offsets: dict[int, tuple[int, int]]) -> int:
    def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = size = 0
        for batch in batches:
            for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                rows += 1
                size += len(record[2])
        yield _count(rows, size)

    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({STREAM: sorted(offsets)}))
        .option("startingOffsets", json.dumps({STREAM: {p: o[0] for p, o in offsets.items()}}))
        .option("endingOffsets", json.dumps({STREAM: {p: o[1] for p, o in offsets.items()}}))
        .load()
        .selectExpr("offset", "key", "value", "unix_millis(timestamp) AS timestamp_ms")
    )
    return sum(row["rows"] for row in frame.mapInArrow(consume, _ROWS).collect())


def _as_ranges(spark: SparkSession, config: dict[str, str], offsets: dict[int, tuple[int, int]]) -> int:
    def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = size = 0
        with closing(
            open_kafka_system(SystemContext(Settings.of(config), "kafka", Path(), SystemClock()))
        ) as system:
            for batch in batches:
                for partition in batch.column(0).to_pylist():
                    for _, records in system.read(STREAM, partition, *offsets[partition]):
                        columns = [records.column(i).to_pylist() for i in (3, 0, 1, 2)]
                        for record in zip(*columns, strict=True):
                            rows += 1
                            size += len(record[2])
        yield _count(rows, size)

    frame = spark.range(0, PARTITIONS, 1, PARTITIONS)
    return sum(row["rows"] for row in frame.mapInArrow(consume, _ROWS).collect())


def run(records: int = 600_000) -> dict[str, Any]:
    """Records a second of both ways, and their ratio, in pairs."""
    figures: dict[str, Any] = {"records": records, "connector": [], "ranges": []}
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory))
        cluster.start()
        try:
            config = _config(cluster.bootstrap)
            offsets = _fill(config, records)
            spark = (
                SparkSession.builder.master("local[2]")
                .config("spark.jars", ",".join(map(str, sorted(CONNECTOR_JARS.glob("*.jar")))))
                .config("spark.sql.execution.arrow.maxRecordsPerBatch", "4000")
                .config("spark.ui.enabled", "false")
                .getOrCreate()
            )
            for number in range(ROUNDS + 1):
                for name, read in (
                    ("connector", lambda: _through_spark(spark, cluster.bootstrap, offsets)),
                    ("ranges", lambda: _as_ranges(spark, config, offsets)),
                ):
                    started = time.monotonic()
                    found = read()
                    assert found == records, (name, found)
                    if number:  # the first round warms both up
                        figures[name].append(round(records / (time.monotonic() - started)))
            spark.stop()
        finally:
            cluster.stop()
    figures["ratio"] = round(
        statistics.median(b / a for a, b in zip(figures["connector"], figures["ranges"], strict=True)), 2
    )
    return figures


def main() -> None:
    """Measure, print, keep."""
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    load = round(os.getloadavg()[0], 1)
    figures = {"when": when, "load_average_before": load, **run(*map(int, sys.argv[1:]))}
    text = json.dumps(figures, indent=2)
    print(text)
    (RESULTS / f"kafka-read-{when}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
