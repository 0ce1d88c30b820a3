"""Write an archive of the classes that Spark loads for a streaming query, from which a JVM starts in 2/3 of the time.

    python scripts/spark_archive.py ARCHIVE

The archive holds for this Java, these jars and their paths; Java starts without it when any of them is another one.
Tests find it beside their interpreter (`tests/conftest.py`), and give it to Spark by `SPARK_SUBMIT_OPTS`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def main(archive: Path) -> None:
    """A query that Python works on, and one that keeps state, a few batches each."""
    unfinished = archive.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # those of the tests' jobs: the collector has to be the same
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", options)
        .getOrCreate()
    )
    gateway: Any = session.sparkContext._gateway  # the process that has to end before the archive is there
    with tempfile.TemporaryDirectory() as directory:
        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        work(rows.mapInArrow(same, rows.schema), Path(directory) / "tasks")
        work(rows.groupBy(rows["value"] % 7).count(), Path(directory) / "state")
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    unfinished.rename(archive)


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """What Python gets, it gives back."""
    yield from batches


def work(frame: DataFrame, checkpoint: Path) -> None:
    """Two batches, each collected as Arrow."""

    def take(batch: DataFrame, _: int) -> None:
        batch.toArrow()

    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode("update")
    query = writer.foreachBatch(take).start()
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < 2):
        query.awaitTermination(1)
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
