"""A `build` that was changed while there is state of it: what has changed is said, and how to go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import grete
from grete.errors import JobError, StateDoesNotFit
from grete.testing.pipeline import PipelineUnderTest
from grete_workbench.hdfs import HdfsCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}


def counted() -> Column:
    return F.count("*").alias("count")


PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FORMS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "counts": lambda rows: rows.groupBy("k").agg(counted()),
    "other keys": lambda rows: rows.withColumn("k", F.length("k")).groupBy("k").agg(counted()),
    "other values": lambda rows: rows.groupBy("k").agg(counted(), F.sum("n").alias("sum")),
    "one operator more": lambda rows: rows.dropDuplicates(["k", "n"]).groupBy("k").agg(counted()),
    "no operator": lambda rows: rows.select("k", "n"),
    "a watermark more": lambda rows: rows.withWatermark("timestamp", "1 minute").groupBy("k").agg(counted()),
}
REFUSED = {
    "other keys": "the keys of its state were (k string) and are (k integer)",
    "other values": "the values of its state were (count long) and are (count long, sum long)",
    "one operator more": "it kept state by an aggregation, and keeps it by an aggregation, dropDuplicates",
    "no operator": "it kept state by an aggregation, and keeps it by nothing",
}


class Changing(grete.DataFramePipeline):
    output = "local.out"
    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        rows = inputs["local.in"].select(
            F.col("key").cast("string").alias("k"),
            F.from_json(F.col("value").cast("string"), "n int")["n"].alias("n"),
            "timestamp",
        )
        return FORMS[self.context.config["app.form"]](rows)


@pytest.fixture
def start(
    start_pipeline: Callable[..., PipelineUnderTest], spark: SparkSession
) -> Callable[..., PipelineUnderTest]:
    return lambda form, **more: start_pipeline(Changing, {**CONFIG, **more, "app.form": form}, spark=spark)


def changed(job: PipelineUnderTest, form: str, **config: str) -> list[object]:
    """A message and a run with the changed build; the last message that it sends."""
    before = len(job.outputs("local.out"))
    job.send("local.in", {"n": 0}, key="a")
    job.restart(config={"app.form": form, **config})
    job.run()
    return [out.message for out in job.outputs("local.out")[before:]]


def test_a_change_that_its_state_does_not_fit_is_named_and_one_setting_goes_on_from_the_checkpoint(
    start: Callable[[str], PipelineUnderTest], caplog: pytest.LogCaptureFixture
) -> None:
    job = start("counts")
    job.send("local.in", {"n": 0}, key="a")
    job.run()
    assert changed(job, "a watermark more") == [{"k": "a", "count": 2}]
    assert changed(job, "counts") == [{"k": "a", "count": 3}]
    with caplog.at_level(logging.WARNING, logger="grete.container"):
        job.spark.conf.set("spark.sql.shuffle.partitions", "3")
        assert changed(job, "counts") == [{"k": "a", "count": 4}]
    assert "spark.sql.shuffle.partitions=3 has no effect: the state of this pipeline is in 2" in caplog.text
    for form, words in REFUSED.items():
        with pytest.raises(StateDoesNotFit) as refused:
            changed(job, form)
        assert f"build makes now: {words} (ST" in str(refused.value), str(refused.value)
        assert "grete run --set job.lineage.state=discard" in str(refused.value)
    assert changed(job, "counts")[-1] == {"k": "a", "count": 9}, "nothing was given up meanwhile"
    sent = changed(job, "other values", **{"job.lineage.state": "discard"})
    assert sent == [{"k": "a", "count": 1, "sum": 0}], "from the checkpoint, with empty state"
    assert changed(job, "other values", **{"job.lineage.state": "keep"}) == [{"k": "a", "count": 2, "sum": 0}]


def partitions_of(job: PipelineUnderTest) -> set[str]:
    [state] = job.directory.glob("jobs/*/container-0/lineages/*/spark*/state/0")
    written = (one for one in state.iterdir() if one.name.isdigit() and any(one.glob("*.zip")))
    newest = max(int(zip_.stem.partition("_")[0]) for one in state.iterdir() for zip_ in one.glob("*.zip"))
    return {one.name for one in written if any(one.glob(f"{newest}*.zip"))}


@pytest.mark.parametrize("form", ["counts", "one operator more"])
def test_state_in_rocksdb_moves_into_as_many_partitions_as_the_configuration_has(
    start: Callable[..., PipelineUnderTest], form: str
) -> None:
    """Also with a batch that was begun with those before, and twice without a batch between."""
    job = start(form, **{PROVIDER: ROCKSDB, PARTITIONS: "2"})

    def send(*keys: str) -> None:
        for key in keys:
            job.send("local.in", {"n": len(job.outputs("local.out"))}, key=key)

    def counts() -> dict[str, int]:
        return {out.message["k"]: out.message["count"] for out in job.outputs("local.out")}

    send(*"abcdefgh")
    job.run()
    assert partitions_of(job) == {"0", "1"}
    job.restart(config={PARTITIONS: "5"})
    job.restart(config={PARTITIONS: "2"})
    job.restart(config={PARTITIONS: "5"})
    send(*"abci")
    job.run()
    assert counts() == {**dict.fromkeys("abc", 2), **dict.fromkeys("defghi", 1)}
    assert partitions_of(job) == {"0", "1", "2", "3", "4"}
    send("d")
    assert job.run_batch(commit=False) is not None
    job.restart(config={PARTITIONS: "3"})
    send("e", "i")
    job.run()
    assert counts() == {**dict.fromkeys("abcdei", 2), **dict.fromkeys("fgh", 1)}
    assert len(job.outputs("local.out")) == len("abcdefgh" + "abci" + "d" + "ei"), "nothing twice"
    assert partitions_of(job) == {"0", "1", "2"}
    job.restart()
    send("a")
    job.run()
    assert counts()["a"] == 3


@pytest.mark.nightly
def test_state_on_hdfs_moves_as_on_a_disk(
    start: Callable[..., PipelineUnderTest], hdfs: HdfsCluster, caplog: pytest.LogCaptureFixture
) -> None:
    place = {"job.lineage.dir": f"{hdfs.bootstrap}/moved", PROVIDER: ROCKSDB}
    job = start("counts", **place, **{PARTITIONS: "2"})
    for key in "abcdefgh":
        job.send("local.in", {"n": 0}, key=key)
    job.run()
    with caplog.at_level(logging.INFO, logger="grete.container"):
        assert changed(job, "counts", **{PARTITIONS: "5"}) == [{"k": "a", "count": 2}]
    assert "is in 5 partitions" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="grete.container"):
        assert changed(job, "counts") == [{"k": "a", "count": 3}]
    assert "continuing lineage" in caplog.text
    assert "partitions" not in caplog.text, "it is not moved again"


def test_where_state_cannot_be_moved_it_is_said_and_goes_on(
    start: Callable[..., PipelineUnderTest], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start("counts", **{PARTITIONS: "2"})
    job.send("local.in", {"n": 0}, key="a")
    job.run()
    with caplog.at_level(logging.WARNING, logger="grete.container"):
        assert changed(job, "counts", **{PARTITIONS: "4"}) == [{"k": "a", "count": 2}]
    assert f"{PARTITIONS}=4 has no effect: the state of this pipeline is in 2 partitions" in caplog.text
    assert "only state in RocksDB can be moved" in caplog.text
    monkeypatch.setattr("grete.spark.pipeline.state_partitions._MOVABLE", "")
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="grete.container"):
        assert changed(job, "counts") == [{"k": "a", "count": 3}]
    assert (
        "Spark does not move it: [STATE_REPARTITION_INVALID_CHECKPOINT.UNSUPPORTED_PROVIDER]" in caplog.text
    )


def test_a_pipeline_that_kept_nothing_begins_to_keep_state_without_a_word(
    start: Callable[[str], PipelineUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start("no operator")
    job.send("local.in", {"n": 0}, key="a")
    job.run()
    assert changed(job, "counts") == [{"k": "a", "count": 1}]
    assert changed(job, "counts") == [{"k": "a", "count": 2}]
    with pytest.raises(StateDoesNotFit):
        changed(job, "no operator")
    monkeypatch.setattr(Changing, "output_mode", "complete")
    with pytest.raises(JobError, match=r"output_mode was .update. and is .complete."):
        changed(job, "counts")
