"""How several inputs and outputs become one query of Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from grete.spark.lineage.offset_log import read_batch_end
from grete.spark.pipeline.inputs import INPUT, read_once, sources_of
from grete.spark.pipeline.outputs import Shared

pytestmark = pytest.mark.spark

BATCHES, ROWS = 3, 10


class GrowingReader(DataSourceStreamReader):
    """Each look at its end finds more, so that two streams of one input would end batches at different rows."""

    def __init__(self, name: str, seen: str) -> None:
        self._name = name
        self._seen = Path(seen)

    def initialOffset(self) -> dict[str, Any]:
        return self._at(0)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        with self._seen.open("a") as file:
            file.write(".")
        return self._at(min(BATCHES * ROWS, len(self._seen.read_text()) * ROWS))

    def _at(self, offset: int) -> dict[str, Any]:
        return {"offsets": {f"{self._name}.0": offset}, "tick": 0}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ssp = f"{self._name}.0"
        return [InputPartition((start["offsets"][ssp], end["offsets"][ssp]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
        for i in range(*partition.value):
            yield self._name, i


class Growing(DataSource):
    @classmethod
    def name(cls) -> str:
        return "growing"

    def schema(self) -> str:
        return "stream string, number int"

    def streamReader(self, schema: object) -> GrowingReader:
        return GrowingReader(self.options[INPUT], self.options["seen"])


class Inputs:
    """Streams by name, and the batches of queries over them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        spark.dataSource.register(Growing)
        self._spark = spark
        self._directory = directory

    def __getitem__(self, name: str) -> DataFrame:
        seen = self._directory / name
        return self._spark.readStream.format("growing").options(seen=str(seen), **{INPUT: name}).load()

    def run(self, outputs: Mapping[str, DataFrame], mode: str = "append") -> list[dict[str, list[Any]]]:
        """The rows of each output, sorted, batch by batch; the offset log of each is read as the product does."""
        read = read_once(outputs)
        shared, names, found = Shared.of(read), list(read), []
        checkpoint, sources = self._directory / "checkpoint", sources_of(shared.frame)

        def each(batch: DataFrame, batch_id: int) -> None:
            rows = shared.of_batch(batch.persist(), names)
            found.append({name: sorted(map(tuple, rows[name].collect())) for name in names})
            found[-1]["ends"] = dict(read_batch_end(checkpoint, batch_id, sources).next_offsets)  # type: ignore[assignment]
            if batch_id + 1 >= BATCHES:
                raise _Enough

        query = (
            shared.frame.writeStream.foreachBatch(each)
            .outputMode(mode)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        with pytest.raises(Exception, match="_Enough"):
            query.awaitTermination()
        return found


class _Enough(Exception):
    """Ends a query."""


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> Inputs:
    return Inputs(spark, tmp_path)


def test_an_input_that_is_used_three_times_is_read_once_so_both_sides_of_a_join_end_at_the_same_row(
    inputs: Inputs,
) -> None:
    [a, b] = inputs["local.a"], inputs["local.b"]
    twice = a.where("number % 2 = 0").union(a.where("number % 2 = 1"))
    joined = twice.alias("x").join(a.alias("y"), F.expr("x.number = y.number")).select("x.number")
    found = inputs.run({"local.out": joined.unionAll(b.select(F.col("number") + 1000))})
    for batch in range(BATCHES):
        rows, ends = found[batch]["local.out"], found[batch]["ends"]
        first, last = batch * ROWS, (batch + 1) * ROWS
        assert rows == [(i + off,) for off in (0, 1000) for i in range(first, last)]
        assert ends == {"local.a.0": last, "local.b.0": last}  # type: ignore[comparison-overlap]


def test_what_outputs_have_in_common_is_computed_once_and_each_gets_its_rows(
    spark: SparkSession, inputs: Inputs, tmp_path: Path
) -> None:
    computed = tmp_path / "computed"

    def note(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            with computed.open("a") as file:
                file.write("." * len(frame))
            yield frame

    parsed = inputs["local.a"].mapInPandas(note, "stream string, number int")
    names = spark.createDataFrame([(1, "one"), (11, "eleven")], "number int, name string")
    outputs = {
        "local.even": parsed.where("number % 2 = 0").select("number"),
        "local.named": parsed.join(names, "number").select("name"),
        "local.twice": parsed.select(F.explode(F.array("number", F.col("number") * 2)).alias("n")).where(
            "n > 30"
        ),
        "local.all": parsed,
    }
    assert sources_of(Shared.of(read_once(outputs)).frame) == ("local.a",)
    found = inputs.run(outputs)
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        assert found[batch]["local.even"] == [(i,) for i in numbers if i % 2 == 0]
        assert found[batch]["local.named"] == [
            (name,) for at, name in ((1, "one"), (11, "eleven")) if at in numbers
        ]
        assert found[batch]["local.twice"] == sorted((n,) for i in numbers for n in (i, 2 * i) if n > 30)
        assert found[batch]["local.all"] == [("local.a", i) for i in numbers]
    assert len(computed.read_text()) == BATCHES * ROWS


def test_outputs_of_different_inputs_and_of_aggregations_make_one_query(inputs: Inputs) -> None:
    [a, b] = inputs["local.a"], inputs["local.b"]
    outputs = {
        "local.counts": a.groupBy((F.col("number") % 2).alias("odd")).agg(F.count("*").alias("n")),
        "local.late": a.withColumn("now", F.current_timestamp()).select("now", "number"),
        "local.b": b.select("number"),
        "local.c": b.select(F.col("number").alias("number"), F.col("number").alias("again")),
    }
    found = inputs.run(outputs, "update")
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        assert found[batch]["local.counts"] == [(odd, (batch + 1) * ROWS // 2) for odd in (0, 1)]
        assert [row[1] for row in found[batch]["local.late"]] == list(numbers)
        assert len({row[0] for row in found[batch]["local.late"]}) == 1, "the batch's time"
        assert found[batch]["local.b"] == [(i,) for i in numbers]
        assert found[batch]["local.c"] == [(i, i) for i in numbers]
