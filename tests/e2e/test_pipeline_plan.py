"""Pipelines that cannot be right are refused before their first batch, in words, and not tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.application.pipeline import named_outputs
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.spark.pipeline.plan_checks import check_containers, gathers
from grete.spark.sinks.factory import check_format

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def every_way_of_looking_at_each_row_alone(spark: SparkSession, stream: DataFrame) -> dict[str, DataFrame]:
    table = spark.range(5).withColumnRenamed("id", "value")
    counted = table.groupBy("value").count()
    stream.createOrReplaceTempView("rates")
    return {
        "as it is": stream,
        "columns": stream.where("value > 3").select((F.col("value") * 2).alias("value")).drop("timestamp"),
        "explode": stream.select(F.explode(F.array("value", "value")).alias("value")),
        "pandas": stream.mapInPandas(lambda frames: frames, stream.schema),
        "arrow": stream.mapInArrow(lambda batches: batches, stream.schema),
        "a table": stream.join(counted, "value", "left"),
        "a watermark": stream.withWatermark("timestamp", "1 minute"),
        "fewer partitions": stream.coalesce(1),
        "sql": spark.sql("with big as (select * from rates where value > 1) select value from big"),
        "unpivot": stream.unpivot("timestamp", ["value"], "name", "number"),
    }


def every_way_of_looking_at_several_rows(stream: DataFrame) -> dict[str, DataFrame]:
    late = stream.withWatermark("timestamp", "1 minute")
    return {
        "Aggregate": stream.groupBy("value").agg(F.count(F.lit(1))).where("value > 1").select("value"),
        "Deduplicate [": stream.distinct(),
        "Deduplicate": late.dropDuplicates(["value", "timestamp"]),
        "DeduplicateWithinWatermark": late.dropDuplicatesWithinWatermark(["value"]),
        "FlatMapGroupsInPandas": stream.groupBy("value").applyInPandas(lambda one: one, stream.schema),
        "Repartition": stream.repartition(3),
        "RepartitionByExpression": stream.repartition("value"),
        "GlobalLimit": stream.limit(3),
        "Sort": stream.groupBy("value").count().orderBy("value"),
    }


def test_what_looks_at_each_row_alone_may_run_in_any_number_of_containers(
    spark: SparkSession, stream: DataFrame
) -> None:
    for name, built in every_way_of_looking_at_each_row_alone(spark, stream).items():
        assert (name, gathers(named_outputs(built, DataFrame, "my:App", "local.out")["local.out"])) == (
            name,
            None,
        )
        check_containers(built, 7)


def test_what_looks_at_several_rows_is_refused_in_more_than_one_container_by_the_operators_name(
    stream: DataFrame,
) -> None:
    for name, built in every_way_of_looking_at_several_rows(stream).items():
        check_containers(named_outputs(built, DataFrame, "my:App", "local.out")["local.out"], 1)
        with pytest.raises(ConfigError) as refused:
            check_containers(built, 2)
        assert f"shuffles rows or keeps state ({name}" in str(refused.value)
        assert "Set job.container.count=1" in str(refused.value)
        assert "job.lineage.state" not in str(refused.value)


def test_a_format_that_spark_does_not_have_is_named_with_its_key_and_the_way_out(spark: SparkSession) -> None:
    """It was found by the first batch: the job was started again and again, with a Spark each time."""

    def check(name: str) -> None:
        check_format(spark, Settings.of({"outputs.lake.format": name}).outputs["lake"])

    for known in ("parquet", "ORC", "json", "csv", "text", "jdbc"):
        check(known)
    with pytest.raises(ConfigError) as refused:
        check("parket")
    assert "outputs.lake.format=parket: [DATA_SOURCE_NOT_FOUND]" in str(refused.value)
    assert "spark.jars.packages" in str(refused.value)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (
            lambda stream: None,
            "has to return a DataFrame, or a dict from output names to DataFrames; it returned",
        ),
        (lambda stream: {}, "returned an empty dict"),
        (
            lambda stream: stream.sparkSession.range(3),
            "output 'local.out' is a DataFrame that reads none of its",
        ),
        (
            lambda stream: {"local.a": stream, "local.b": 3},
            "output 'local.b' has to be a DataFrame, it is int",
        ),
        (lambda stream: {3: stream}, "the name of an output is text, 3 is not"),
    ],
)
def test_what_a_pipeline_cannot_return_is_said_with_the_way_out(
    stream: DataFrame, build: Callable[[DataFrame], object], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        named_outputs(build(stream), DataFrame, "my:App", "local.out")
    assert str(refused.value).startswith("app.class: my:App.build")
    assert says in str(refused.value)


def test_one_frame_needs_the_name_of_its_output(stream: DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"my:App.output does not say where it goes: set it to a stream"):
        named_outputs(stream, DataFrame, "my:App", "")


@pytest.mark.nightly  # above what is refused is refused; here it is a whole job
@pytest.mark.timeout(400)
def test_a_counting_pipeline_is_refused_in_two_containers_at_once_and_goes_on_in_one(
    counting_pipelines: Any,
) -> None:
    job, _ = counting_pipelines
    job.fill(100)
    assert job.run().returncode == 0
    before = job.counted()
    refused = job.run("--set", "job.container.count=2")
    assert refused.returncode == 2, refused.stderr
    assert "the pipeline's plan shuffles rows or keeps state (Aggregate" in refused.stderr
    assert "Set job.container.count=1" in refused.stderr
    assert "job.lineage.state" not in refused.stderr
    logs = [path.read_text() for path in (job.home / "jobs" / "counter-1" / "logs").glob("container-?.log")]
    said = [log.count("shuffles rows or keeps state") for log in logs]
    assert max(said) == 1, "it was not tried again"
    job.fill(100)
    done = job.run()
    assert done.returncode == 0, done.stderr
    assert job.counted() == 2 * before, "with the state that it had"
