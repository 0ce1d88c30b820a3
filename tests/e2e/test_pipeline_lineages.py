"""When a pipeline may go on with what Spark keeps, and when it needs the operator's word."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import grete
from grete.clock import SystemClock
from grete.errors import JobError
from grete.spark.lineage.files import foreign_offsets
from grete.spark.lineage.source_log import batches
from grete.systems.local.system import LocalSystem
from grete.testing.pipeline import PipelineUnderTest

pytestmark = pytest.mark.spark

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
Start = Callable[..., PipelineUnderTest]


class Copied(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].select("key", F.lit(1).alias("n"))


class CopiedToFiles(grete.DataFramePipeline):
    def build(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {"files": inputs["local.in"].select(F.col("key").cast("string"))}


class Counting(grete.DataFramePipeline):
    output = "local.out"
    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].groupBy("key").agg(F.count("*").alias("n"))


class WithFiles(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        folder = self.context.config["app.folder"]
        lines = self.context.read_stream("text", path=folder, schema="value string")
        more = lines.select(F.col("value").cast("binary").alias("key"), F.lit(2).alias("n"))
        return inputs["local.in"].select("key", F.lit(1).alias("n")).unionByName(more)


@pytest.fixture
def start(start_pipeline: Start, spark: SparkSession) -> Start:
    def started(application: Any, **more: str) -> PipelineUnderTest:
        return start_pipeline(application, {**CONFIG, **more}, spark=spark)

    return started


def sent(job: PipelineUnderTest) -> list[tuple[str, int]]:
    return sorted((out.key, out.message["n"]) for out in job.outputs("local.out"))


def test_a_pipeline_that_keeps_nothing_in_spark_is_rewound_and_moved_without_a_word(start: Start) -> None:
    job = start(Copied)
    for key in "abc":
        job.send("local.in", {}, key=key)
    job.run()
    job.replay("local.in", offset=2)
    assert job.run().records == 1
    job.restart(lose_lineages=True)
    job.send("local.in", {}, key="d")
    assert job.run().records == 1
    assert sent(job) == [("a", 1), ("b", 1), ("c", 1), ("c", 1), ("d", 1)]


def test_where_rows_of_a_batch_that_was_begun_may_be_in_files_already_it_is_asked_for(
    start: Start, tmp_path: Path, spark: SparkSession
) -> None:
    files = f"{tmp_path}/files"
    job = start(CopiedToFiles, **{"outputs.files.format": "json", "outputs.files.path": files})
    job.send("local.in", {}, key="a")
    job.run()
    job.send("local.in", {}, key="b")
    assert job.run_batch(commit=False) is not None
    job.restart(lose_lineages=True)
    with pytest.raises(
        JobError, match=r"location is gone; and its last batch was begun.* in files already.*discard"
    ):
        job.run()
    job.restart(config={"job.lineage.state": "discard"})
    job.run()
    assert sorted(row.key for row in spark.read.json(files).collect()) == ["a", "b", "b"]


def test_state_in_spark_goes_on_when_an_input_grows(start: Start) -> None:
    job = start(Counting)
    for key in "aab":
        job.send("local.in", {}, key=key)
    job.run()
    job.kill()
    with closing(LocalSystem(job.directory / "local", SystemClock())) as local:
        local.add_partitions("in", 4)
    job.start()
    for key in "abcdefgh":
        job.send("local.in", {}, key=key)
    assert job.run().records == 8
    assert len(job.checkpoints()) == 4
    job.restart()
    job.send("local.in", {}, key="a")
    job.run()
    assert sent(job) == sorted(
        [("a", 2), ("b", 1), ("a", 3), ("b", 2), *((key, 1) for key in "cdefgh"), ("a", 4)]
    )


def test_where_inputs_have_ends_a_pipeline_stops_there_and_goes_on_behind_them_with_its_state(
    start: Start,
) -> None:
    job = start(Counting)
    for key in "aab":
        job.send("local.in", {}, key=key)
    job.run()
    for key in "abab":
        job.send("local.in", {}, key=key)
    job.restart(config={"task.inputs.ends": "local.in.0=5"})
    assert job.run().records == 2
    assert job.run().records == 0
    assert job.checkpoints()["Partition 0"] == {"local.in.0": 4}
    job.restart(config={"task.inputs.ends": ""})
    assert job.run().records == 2
    assert sent(job) == sorted([("a", 2), ("b", 1), ("a", 3), ("b", 2), ("a", 4), ("b", 3)])


def test_a_batch_that_was_planned_before_an_end_was_told_runs_as_it_was(start: Start) -> None:
    job = start(Counting)
    job.send("local.in", {}, key="a")
    job.run()
    for key in "abab":
        job.send("local.in", {}, key=key)
    assert job.run_batch(commit=False) is not None
    job.restart(config={"task.inputs.ends": "local.in.0=3"})
    assert job.run().records == 4
    assert sent(job) == sorted([("a", 1), ("a", 3), ("b", 2)])


def test_a_source_of_sparks_own_is_read_beside_and_is_no_reason_to_lose_or_double_it_silently(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "first.txt").write_text("x\ny\n")
    job = start(WithFiles, **{"app.folder": str(tmp_path)})
    job.send("local.in", {}, key="a")
    job.run()
    assert sent(job) == [("a", 1), ("x", 2), ("y", 2)]
    job.restart()
    (tmp_path / "second.txt").write_text("z\n")
    job.run()
    assert sent(job) == [("a", 1), ("x", 2), ("y", 2), ("z", 2)]
    [lineages] = (job.directory / "jobs").glob("*/container-*/lineages")
    lineage = json.loads((lineages / "current.json").read_text())["id"]
    last = max(batches(lineages / lineage / "spark" / "commits"))
    assert foreign_offsets(lineages, lineage, last) == {"1": '{"logOffset":1}'}
    job.replay("local.in")
    with pytest.raises(JobError, match=r"a source that is not grete's, whose offsets are Spark's.*discard"):
        job.run()


def test_spark_renames_files_of_a_lineage_without_starting_a_program(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Through Hadoop's newer interface it starts `readlink` eight times a batch, half of the time of a small one."""
    jvm: Any = spark.sparkContext._jvm
    files = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
    java_session: Any = spark._jsparkSession
    chosen = files.create(path, java_session.sessionState().newHadoopConf()).getClass().getSimpleName()
    assert chosen == "FileSystemBasedCheckpointFileManager"
