"""Write an archive of the classes that Spark loads for a streaming query, from which its JVM starts sooner.

    python -m grete.spark.class_archive [ARCHIVE [JVM OPTION ...]]

Without ARCHIVE it is where sessions of pipelines look for it (`versions.class_archive`). It holds for this Java,
Spark's jars and their paths, and the same garbage collector; with another, Java starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.spark.versions import class_archive


def main(arguments: Sequence[str]) -> None:
    """A query that Python works on, one of Spark's own functions, and one that keeps state, a few batches each."""
    archive = Path(arguments[0]).resolve() if arguments else class_archive()
    unfinished = archive.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", " ".join(arguments[1:]))
        .getOrCreate()
    )
    gateway: Any = session.sparkContext._gateway  # the process that has to end before the archive is there
    with tempfile.TemporaryDirectory() as directory:
        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        work(rows.mapInArrow(same, rows.schema), Path(directory) / "tasks")
        work(through_json(rows), Path(directory) / "functions")
        work(rows.groupBy(rows["value"] % 7).count(), Path(directory) / "state")
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    unfinished.rename(archive)
    print(archive)


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """What Python gets, it gives back."""
    yield from batches


def through_json(rows: DataFrame) -> DataFrame:
    """Keys and values as of Kafka."""
    text = rows.select(F.to_json(F.struct("value")).alias("value"))
    number = F.from_json(F.col("value"), "value long")["value"]
    return text.select(number.cast("string").cast("binary").alias("key"), F.col("value").cast("binary"))


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
    main(sys.argv[1:])
