"""Write an archive of the classes that Spark loads for a streaming query, from which a job's JVM starts sooner.

    python -m grete.spark.class_archive [ARCHIVE [JVM OPTION ...]]

Without ARCHIVE it is where drivers look for it (`versions.class_archive`). It holds for this Java and for Spark's
jars at their paths. Written as by default, by a JVM with Java's own choice of a garbage collector, it serves those
with the serial one as well, as StreamTasks have it: a context in 1.9 s and not 2.8.

It is there whole or not at all, and whoever reads an older one goes on with that: each writer has a folder of its own
beside the place. No start of a job makes it by itself: that takes 25 s of a processor and 1 GB of memory, which the
machine or pod of a job may not have beside it.
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

from grete.spark.jvm import gateway_of
from grete.spark.session.versions import class_archive


def main(arguments: Sequence[str]) -> None:
    """Write it, and print where. Ends with the reason where it cannot be written, before any work if it can."""
    archive = Path(arguments[0]).resolve() if arguments else class_archive()
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f"{archive.name}.") as folder:
            unfinished = Path(folder) / archive.name
            _write(unfinished, arguments[1:])
            unfinished.replace(archive)
    except OSError as error:
        sys.exit(f"{archive} was not written: {error}")
    print(archive)


def _write(archive: Path, options: Sequence[str]) -> None:
    """A query that Python works on, one of Spark's own functions, and one that keeps state, a few batches each.

    Java writes the archive of what was loaded when it ends, and leaves none where it cannot.
    """
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", " ".join(options))
        .getOrCreate()
    )
    gateway: Any = gateway_of(session.sparkContext)  # the process that has to end before the archive is there
    with tempfile.TemporaryDirectory() as directory:
        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        work(rows.mapInArrow(same, rows.schema), Path(directory) / "tasks")
        work(through_json(rows), Path(directory) / "functions")
        work(rows.groupBy(rows["value"] % 7).count(), Path(directory) / "state")
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


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
