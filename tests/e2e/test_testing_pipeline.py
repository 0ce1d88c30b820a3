"""The kit for tests of DataFrame pipelines, `grete.testing.pipeline`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import grete
from grete.errors import ApplicationError, ConfigError, IllegalStateError, JobError
from grete.testing.job import JobUnderTest
from grete.testing.pipeline import PipelineUnderTest
from grete.testing.pipeline_fixtures import start_pipeline as start_pipeline

pytestmark = pytest.mark.spark

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "task.max.records.per.batch": "2",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"
Start = Callable[..., PipelineUnderTest]


class Doubled(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        number = F.from_json(inputs["local.in"]["value"].cast("string"), "n int")["n"]
        return inputs["local.in"].select("key", (2 * number).alias("n"))


class Counting(grete.DataFramePipeline):
    output = "local.out"
    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].groupBy("key").agg(F.count("*").alias("n"))


class Late(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        windows = (
            inputs["local.in"]
            .withWatermark("timestamp", "0 seconds")
            .groupBy(F.window("timestamp", "10 seconds"))
        )
        return windows.agg(F.count("*").alias("n")).select("n")


class Typo(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].select("valu")


class Enriched(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        frame = inputs["local.in"]
        names = frame.sparkSession.table("names")
        return frame.select(frame["key"].cast("string").alias("id")).join(names, "id").select("name")


def test_the_example_of_the_documents_works_as_written(spark: SparkSession) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    [example] = [block for block in blocks if "with PipelineUnderTest(" in block]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, DOCUMENT.name, "exec"), names)  # noqa: S102 - our own document
    names["test_readings_that_are_too_hot_are_reported_once"]()


@pytest.fixture
def start(start_pipeline: Start, spark: SparkSession) -> Start:
    def started(application: Any, **more: str) -> PipelineUnderTest:
        return start_pipeline(application, {**CONFIG, **more}, spark=spark)

    return started


def numbers(job: PipelineUnderTest) -> list[tuple[str, int]]:
    return [(out.key, out.message["n"]) for out in job.outputs("local.out")]


def test_rows_go_in_and_come_out_in_batches_and_each_once_whatever_is_killed(start: Start) -> None:
    job = start(Doubled)
    for n in range(5):
        job.send("local.in", {"n": n}, key="a")
    assert job.run_batch(commit=False) is not None
    assert not numbers(job)
    job.restart()
    first = job.run_batch()
    assert first is not None
    assert first.records == 2
    assert numbers(job) == [("a", 0), ("a", 2)]
    job.kill()
    job.start()
    assert job.run().records == 3
    assert numbers(job) == [("a", 2 * n) for n in range(5)]
    assert job.run_batch() is None
    assert job.checkpoints() == {"Partition 0": {"local.in.0": 4}}
    assert job.metrics()["org.apache.samza.container.SamzaContainerMetrics"]["process-envelopes"] == 3


class Widened(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].select("key", F.expr("repeat('x', 500000)").alias("value"))


def test_a_batch_of_rows_is_never_in_the_drivers_memory(start: Start) -> None:
    more = {"systems.local.streams.out.samza.msg.serde": "string", "task.max.records.per.batch": "10000"}
    job = start(Widened, **more)
    job.send("local.in", {"n": 0}, key="warm")
    job.run()
    for n in range(400):
        job.send("local.in", {"n": n}, key=f"k{n}")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = memory_mb("VmRSS")
    assert job.run().batches == 1
    assert memory_mb("VmHWM") - before < 120, "200 MB of rows"
    assert len(job.outputs("local.out")) == 401


def memory_mb(name: str) -> int:
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(f"{name}:")]
    return int(line.split()[1]) // 1024


def test_state_survives_restarts_and_its_loss_is_refused_unless_it_is_given_up(start: Start) -> None:
    job = start(Counting)
    for _ in range(2):
        job.send("local.in", {}, key="a")
        job.run()
        job.restart()
    assert numbers(job) == [("a", 1), ("a", 2)]
    job.restart(lose_lineages=True)
    job.send("local.in", {}, key="a")
    with pytest.raises(JobError, match=r"job\.lineage\.state=discard"):
        job.run()
    job.restart(config={"job.lineage.state": "discard"})
    job.run()
    assert numbers(job)[-1] == ("a", 1)


def test_a_rewind_reads_again_and_needs_a_word_about_state(start: Start) -> None:
    job = start(Counting)
    for _ in range(3):
        job.send("local.in", {}, key="a")
    job.run()
    job.replay("local.in", offset=1)
    with pytest.raises(JobError, match="an operator has moved the checkpoint"):
        job.run()
    job.replay("local.in", offset=1, discard_state=True)
    assert job.run().records == 2
    assert numbers(job)[-1] == ("a", 2)


def test_times_of_messages_are_the_tests_and_watermarks_follow_them(start: Start) -> None:
    job = start(Late)
    job.send("local.in", {}, timestamp_ms=1_000)
    job.send("local.in", {}, timestamp_ms=2_000)
    job.run()
    assert not job.messages("local.out")
    job.send("local.in", {}, timestamp_ms=11_000)
    job.run()
    assert job.messages("local.out") == [{"n": 2}]


def test_metrics_have_sparks_own_figures(start: Start) -> None:
    job = start(Late)
    for second in (1, 2, 30):
        job.send("local.in", {}, timestamp_ms=1_000 * second)
    job.run()
    job.send("local.in", {}, timestamp_ms=3_000)
    job.run()
    metrics = job.metrics()
    query, operator = metrics["spark.query"], metrics["spark.operator.0.stateStoreSave"]
    assert (query["input-rows"], query["watermark-ms"], query["late-rows-dropped"]) == (4, 30_000, 1)
    assert query["batch-ms"] > 0
    assert metrics["spark.duration"]["addBatch-ms"] > 0
    assert metrics["spark.source.local.in"]["input-rows"] == 4
    assert (operator["state-rows"], operator["late-rows-dropped"]) == (1, 1)
    assert operator["state-bytes"] > 0


def test_a_mistyped_column_is_named_and_the_plan_of_a_right_one_is_shown(start: Start) -> None:
    with pytest.raises(ApplicationError, match="UNRESOLVED_COLUMN"):
        start(Typo).run()
    assert "StreamingRelation" in start(Doubled).plan()


def test_tables_and_sql_settings_of_a_test_are_its_own(start: Start) -> None:
    job = start(Enriched, **{"spark.sql.shuffle.partitions": "1", "spark.executor.memory": "1g"})
    assert job.spark.conf.get("spark.sql.shuffle.partitions") == "1"
    job.spark.createDataFrame([("a", "Anna")], "id string, name string").createOrReplaceTempView("names")
    job.send("local.in", {}, key="a")
    job.run()
    assert job.messages("local.out") == [{"name": "Anna"}]
    other = start(Enriched)
    assert not other.spark.catalog.tableExists("names")


def test_what_it_is_not_for_is_refused_in_words(start: Start, spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"grete\.testing\.pipeline\.PipelineUnderTest"):
        JobUnderTest(None, {**CONFIG, "app.class": "flights:Carriers"})
    with pytest.raises(ConfigError, match=r"grete\.testing\.job\.JobUnderTest"):
        PipelineUnderTest(None, {**CONFIG, "task.class": "flights:Carriers"}, spark=spark)
    with pytest.raises(IllegalStateError, match="send them when the job is to see them"):
        start(Doubled).block("local.in")
