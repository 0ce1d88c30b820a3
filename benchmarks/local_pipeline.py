"""`python -m benchmarks.local_pipeline`: an embedded DataFrame pipeline against the same PySpark by hand.

The same records lie in a stream of the embedded system and in Parquet files, which Spark reads in its own code. By
hand there are two sinks: `database` writes each batch's rows and its number into a SQLite file, in one synced
transaction, which is what a commit of grete promises too; `files` is Spark's own sink of Parquet files, which syncs
nothing. Both sides take turns in one session.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import grete
from benchmarks import applications as work
from benchmarks.contestants import keep
from benchmarks.data_plane import Cost, compare, ignored, measure
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.process_state import ProcessState
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.spark.job_run import run_job
from grete.spark.session.container_session import build_session
from grete.systems.local.system import LocalSystem, Message

PARTITIONS = 4
BATCH = 200_000
_FILE = 50_000
SPARK = {"spark.master": "local[2]", "spark.driver.memory": "2g"}
TO_A_STREAM = {"task.outputs": "local.out"}
_LAYOUT = "key binary, value binary"


class PassThrough(grete.DataFramePipeline):
    """Key and value as they came."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].select("key", "value")


class Aggregate(PassThrough):
    """Count, mean and maximum per carrier, in Spark's state."""

    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return work.aggregate(inputs["local.in"])


def pass_through_by_hand(records: DataFrame) -> DataFrame:
    """As a pipeline's rows are written."""
    return records.select("key", "value")


def aggregate_by_hand(records: DataFrame) -> DataFrame:
    """As a pipeline's rows are written."""
    rows = work.aggregate(records)
    names = [name for name in rows.columns if name != "key"]
    return rows.select("key", F.to_json(F.struct(*names)).cast("binary").alias("value"))


class Bench:
    """Records as a stream and as files, and a session."""

    def __init__(self, records: int, directory: Path, settings: Mapping[str, str] = SPARK) -> None:
        self.directory = directory
        self._runs = 0
        self._home = directory / "home"
        self.spark: SparkSession = build_session("bench", Settings.of(settings))
        self._files = str(directory / "files")
        with closing(LocalSystem(self._home / "local", SystemClock())) as system:
            for stream in ("in", "out"):
                system.create_stream(StreamSpec(stream, PARTITIONS))
            for start in range(0, records, _FILE):
                found = [_record(i) for i in range(start, min(start + _FILE, records))]
                system.append("in", (Message(key, value, 0) for key, value in found))
                frame = self.spark.createDataFrame(found, _LAYOUT)
                frame.coalesce(1).write.mode("append").parquet(self._files)

    def next_name(self) -> str:
        """Of a run."""
        self._runs += 1
        return f"run-{self._runs}"

    def grete(self, pipeline: str, outputs: Mapping[str, str] = TO_A_STREAM) -> Cost:
        """A grete job over all records, into a stream that is empty."""
        name = self.next_name()
        with closing(LocalSystem(self._home / "local", SystemClock())) as system:
            system.delete_stream("out")
            system.create_stream(StreamSpec("out", PARTITIONS))
        tasks = tuple(
            AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition("local", "in", p),), p)
            for p in range(PARTITIONS)
        )
        config = {
            "app.class": pipeline,
            "task.inputs": "local.in",
            "systems.local.samza.offset.default": "oldest",
            "task.max.records.per.batch": str(BATCH),
            **SPARK,
            **outputs,
        }
        assignment = Assignment(
            JobId(name), ContainerId("0"), 1, Settings.of(config), tasks, until_drained=True
        )

        def run() -> None:
            with closing(ProcessState()) as kept:
                run_job(
                    assignment, self._home, threading.Event(), on_batch=ignored, on_at_work=ignored, kept=kept
                )

        return measure(run)

    def records(self) -> DataFrame:
        """The files as a stream, batches of the same size."""
        frame = self.spark.readStream.schema(_LAYOUT).option("maxFilesPerTrigger", BATCH // _FILE)
        return frame.parquet(self._files)

    def by_hand(self, query: Callable[[DataFrame], DataFrame], mode: str, sink: str) -> Cost:
        """The query over the files."""
        target = self.directory / self.next_name()
        writer = query(self.records()).writeStream.trigger(availableNow=True)
        writer = writer.outputMode(mode).option("checkpointLocation", f"{target}-checkpoint")
        if sink == "files":
            writer = writer.format("parquet").option("path", str(target))
        else:
            writer = writer.foreachBatch(_into_database(Path(f"{target}.db")))
        return measure(lambda: writer.start().awaitTermination())


def _into_database(path: Path) -> Callable[[DataFrame, int], None]:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE records (key BLOB, value BLOB); CREATE TABLE batches (id INTEGER PRIMARY KEY)"
    )

    def write(rows: DataFrame, batch: int) -> None:
        found = rows.toArrow()
        with connection:
            connection.execute("INSERT INTO batches VALUES (?)", (batch,))
            columns = (column.to_pylist() for column in found.columns)
            connection.executemany("INSERT INTO records VALUES (?, ?)", zip(*columns, strict=True))

    return write


def _record(i: int) -> tuple[bytes, bytes]:
    value = b'{"n":%d,"carrier":"C%d","delay":%d,"pad":"%s"}' % (i, i % 16, i % 300, b"x" * 100)
    return b"key%d" % (i % 5_000), value


def run(records: int, pairs: int) -> dict[str, object]:
    """All comparisons."""
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as folder:
        bench = Bench(records, Path(folder))
        return {
            f"{name}_vs_{sink}": compare(
                records,
                pairs,
                lambda pipeline=pipeline: bench.grete(f"benchmarks.local_pipeline:{pipeline}"),  # type: ignore[misc] # a default binds the loop's value
                lambda query=query, mode=mode, sink=sink: bench.by_hand(query, mode, sink),  # type: ignore[misc] # as above
            )
            for name, pipeline, query, mode, sinks in (
                ("pass_through", "PassThrough", pass_through_by_hand, "append", ("database", "files")),
                ("aggregate", "Aggregate", aggregate_by_hand, "update", ("database",)),
            )
            for sink in sinks
        }


def measure_and_keep(
    kind: str, what: str, run: Callable[[int, int], Mapping[str, object]], *, records: int, pairs: int
) -> None:
    """The command of such a benchmark: measure so many pairs over so many records, print, keep."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--pairs", type=int, default=pairs)
    parser.add_argument("--discard", action="store_true", help="keep no file of the results")
    given = parser.parse_args()
    figures = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average_before": round(os.getloadavg()[0], 1),  # far above 1: something else ran beside it
        "batch": BATCH,
        **run(given.records, given.pairs),
    }
    keep(figures, kind=kind, is_discarded=given.discard)


if __name__ == "__main__":
    measure_and_keep(
        "local-pipeline",
        "An embedded DataFrame pipeline against PySpark by hand.",
        run,
        records=1_000_000,
        pairs=3,
    )
