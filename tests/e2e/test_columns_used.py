"""Embedded inputs give a query the columns that it looks at, and null for the rest, which nobody can tell."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.spark.pipeline import columns_used
from grete.spark.pipeline.inputs import INPUT
from grete.spark.pipeline.outputs import Shared
from grete.spark.pipeline.planned_source import read_stream
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.read_plan import SourceOptions

ALL = {"stream", "partition", "offset", "key", "value", "timestamp"}
SSPS = ("local.in.0", "local.in.1")


def as_it_is(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


Shape = Callable[[DataFrame], DataFrame]
SHAPES: dict[str, tuple[Shape, Set[str]]] = {
    "all": (lambda rows: rows, ALL),
    "one": (lambda rows: rows.select("value"), {"value"}),
    "a filter's and another": (lambda rows: rows.where("partition = 1").select("key"), {"key", "partition"}),
    "within a function": (lambda rows: rows.select(F.length("value").alias("n")), {"value"}),
    "renamed and dropped": (lambda rows: rows.withColumnRenamed("key", "k").drop("offset"), ALL),
    "added and chosen": (
        lambda rows: rows.withColumn("n", F.col("offset") + 1).select("n", "key"),
        ALL,
    ),
    "under a function of batches": (
        lambda rows: rows.select("key", "timestamp").mapInArrow(as_it_is, "key binary, timestamp timestamp"),
        {"key", "timestamp"},
    ),
    "a function of batches of all": (
        lambda rows: rows.mapInArrow(as_it_is, rows.schema).select("value"),
        ALL,
    ),
    "of a watermark": (
        lambda rows: rows.withWatermark("timestamp", "1 hour").select("timestamp", "value"),
        {"timestamp", "value"},
    ),
    "of two branches": (
        lambda rows: rows.select("key").unionAll(rows.select(F.col("stream").cast("binary"))),
        {"key", "stream"},
    ),
    "of a subquery of SQL": (
        lambda rows: (
            rows.createOrReplaceTempView("records")
            or rows.sparkSession.sql("SELECT key FROM (SELECT * FROM records WHERE offset < 3)")
        ),
        ALL,
    ),
    "of a subquery over a table": (
        lambda rows: (
            rows.createOrReplaceTempView("records")
            or rows.sparkSession.sql(
                "SELECT value FROM records WHERE offset > (SELECT max(id) FROM range(3))"
            )
        ),
        ALL,
    ),
    "of a branch that is not taken yet": (
        lambda rows: rows.select(
            F.when(F.current_timestamp() < "2020-01-01", F.col("key")).otherwise("later")
        ),
        {"key"},
    ),
    "of a filter that holds by the time of day": (
        lambda rows: rows.where("now() > timestamp'2020-01-01' OR value IS NOT NULL").select("key"),
        {"key", "value"},
    ),
    "of what is exploded": (
        lambda rows: rows.select(F.explode(F.array("key", "value")).alias("one")),
        ALL,
    ),
}
WITH_STATE: dict[str, tuple[Shape, Set[str]]] = {
    "counted": (lambda rows: rows.groupBy("key").count(), {"key"}),
    "all counted": (lambda rows: rows.agg(F.count(F.lit(1))), set()),
    "once": (lambda rows: rows.dropDuplicates(["value"]).select("value"), ALL),
    "once, of what was chosen": (lambda rows: rows.select("value").dropDuplicates(["value"]), {"value"}),
}


class Stream:
    """A stream of an embedded system, and queries of it in a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.used = folder / "columns.json"
        with closing(LocalSystem(folder / "local", SystemClock())) as system:
            system.create_stream(StreamSpec("in", 2))
            system.append("in", (Message(b"k%d" % (n % 3), b"v%d" % (n % 4), n) for n in range(20)))

    def frame(self) -> DataFrame:
        options = SourceOptions("local", {}, str(self._folder), SSPS, dict.fromkeys(SSPS, 0), None, 1_000)
        return read_stream(self._spark, options, {INPUT: "local.in", columns_used.USED: str(self.used)})

    def rows(self, frame: DataFrame, mode: str) -> list[tuple[object, ...]]:
        """What a query of the frame gives."""
        name = f"rows_{uuid.uuid4().hex}"
        query = frame.writeStream.format("memory").queryName(name).outputMode(mode)
        query = query.option("checkpointLocation", str(self._folder / name)).trigger(availableNow=True)
        query.start().awaitTermination()
        return sorted(tuple(row) for row in self._spark.table(name).collect())


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*SHAPES, *WITH_STATE])
def test_a_query_has_the_same_rows_when_what_it_does_not_use_is_null(stream: Stream, name: str) -> None:
    shape, expected = (SHAPES | WITH_STATE)[name]
    frame, mode = shape(stream.frame()), "complete" if name in ("counted", "all counted") else "append"
    assert columns_used.columns_used(frame, INPUT) == {"local.in": expected}
    whole = stream.rows(frame, mode)
    columns_used.write(stream.used, {"local.in": expected})
    assert whole
    assert stream.rows(frame, mode) == whole


def test_columns_that_are_not_used_are_null_in_the_source(stream: Stream) -> None:
    """Else nothing would be saved: this is what the tests above could not tell."""
    columns_used.write(stream.used, {"local.in": {"value", "offset"}})
    [first, *_] = stream.rows(stream.frame().select("offset", "value", "key", "stream"), "append")
    assert first[1] is not None
    assert first[2:] == (None, None)


def test_what_outputs_share_is_computed_from_all_that_it_uses_though_none_shows_it(stream: Stream) -> None:
    """Else state, and functions that look at what nobody shows, would have got nulls."""
    rows = stream.frame().groupBy("key").agg(F.max("value").alias("most"), F.count("*").alias("n"))
    outputs = {"local.c": rows.select("key", "n"), "local.b": rows.where("n > 1").select("key")}
    assert columns_used.columns_used(Shared.of(outputs).frame, INPUT) == {"local.in": {"key", "value"}}


def test_what_several_outputs_use_is_used(stream: Stream) -> None:
    rows = stream.frame()
    outputs = {"local.a": rows.select("key"), "local.b": rows.select("value")}
    assert columns_used.columns_used(Shared.of(outputs).frame, INPUT)["local.in"] >= {"key", "value"}


def test_a_stale_file_does_not_outlive_the_next_start(tmp_path: Path) -> None:
    used = (
        tmp_path / "container-0" / "columns.json"
    )  # a folder that nothing has made, as with job.lineage.dir
    columns_used.write(used, {"local.in": {"key"}})
    assert columns_used.read(used, "local.in") == {"key"}
    assert columns_used.read(used, "local.other") is None
    columns_used.write(used, {})
    assert columns_used.read(used, "local.in") is None
