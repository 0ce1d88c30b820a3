"""A pipeline with an output of every kind, killed between any two steps: each row is in each of them once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.postgresql import PostgreSql

import grete
from grete import Batch, failpoints
from grete.clock import SystemClock
from grete.errors import LogError
from grete.failpoints import POINTS
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.pipeline import PipelineUnderTest

pytestmark = [
    pytest.mark.fault,
    pytest.mark.spark,
    pytest.mark.timeout(3_600 if "GRETE_NIGHTLY" in os.environ else 900),
]

NIGHTLY = "GRETE_NIGHTLY" in os.environ
APPLICATION = '''
import json
import pathlib

import grete
from pyspark.sql import functions as F

class Everywhere(grete.DataFramePipeline):
    """The same numbers into every kind of output, and their count so far, which is kept in Spark's state."""

    output_mode = "update"

    def build(self, inputs):
        numbers = inputs["local.in"].select(F.col("value").cast("string").cast("int").alias("n"))
        count = inputs["local.in"].groupBy(F.lit("all").alias("key")).count()
        return {"local.all": numbers, "table": numbers, "files": numbers, "rows": numbers, "own": numbers,
                "local.count": count}

    def write_batch(self, name, frame, batch):
        path = pathlib.Path(f"{name}-{batch.id}.json")
        path.write_text(json.dumps([row.n for row in frame.collect()]))
'''
PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Everywhere
task.inputs=local.in
task.outputs=local.all,local.count
task.max.records.per.batch={batch}
cluster-manager.container.retry.longest-pause.ms=100
cluster-manager.container.retry.count=-1
systems.local.samza.offset.default=oldest
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
outputs.table.format=delta
outputs.table.path={path}/table
outputs.files.format=parquet
outputs.files.path={path}/files
outputs.rows.table=numbers
"""
RECORDS = 1_200 if NIGHTLY else 300
SINKS = [name for name in POINTS if name.startswith("sink.")]
KILLS = [("sink.committed", 1), ("sink.staged", 2), ("sink.moved", 1)]
"""Each takes a start of Spark; in `make test` the others are met in one Spark, below."""
OF_A_BATCH = [name for name in POINTS if name.split(".")[0] in ("batch", "sink", "commit")]
MORE = [("container.lineage-decided", 1), *((name, nth) for nth in (1, 2) for name in OF_A_BATCH)]
"""With those of test_kill_everywhere.py and of tests/kafka/test_pipelines.py more than 100."""
ENDS = [*((name, 1) for name in OF_A_BATCH), *((name, 2) for name in SINKS if name != "sink.moved")]


@pytest.mark.nightly  # three starts of Spark; the test below ends a driver at the same steps
def test_every_kind_of_output_has_each_row_once_wherever_the_container_is_killed(
    spark: SparkSession, postgresql: PostgreSql, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    assert {name for name, _ in KILLS} >= set(SINKS)
    job = job_maker(tmp_path, APPLICATION, PROPERTIES.format(path=tmp_path, batch=20 if NIGHTLY else 100))
    job.configure({f"outputs.rows.{name}": value for name, value in postgresql.config.items()})
    postgresql.sql("DROP TABLE IF EXISTS grete_commits, numbers; CREATE TABLE numbers (n int)")
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", 2))
        local.append("in", (Message(b"%d" % n, b"%d" % n, n) for n in range(RECORDS)))
    job.run_through([*KILLS, *(MORE if NIGHTLY else [])], tmp_path / "died")

    numbers = list(range(RECORDS))
    assert sorted(json.loads(value)["n"] for value in values(job, "all")) == numbers
    assert sorted(row.n for row in spark.read.format("delta").load(f"{tmp_path}/table").collect()) == numbers
    assert sorted(row.n for row in spark.read.parquet(f"{tmp_path}/files").collect()) == numbers
    assert sorted(int(row[0]) for row in postgresql.sql("TABLE numbers")) == numbers
    own = [n for path in job.config.parent.glob("own-*.json") for n in json.loads(path.read_text())]
    assert sorted(own) == numbers
    counts = [json.loads(value)["count"] for value in values(job, "count")]
    assert counts == sorted(set(counts))
    assert counts[-1] == RECORDS


class Everywhere(grete.DataFramePipeline):
    """The same keys into outputs of several kinds, and their count so far, which is kept in Spark's state."""

    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        keys = inputs["local.in"].select("key")
        texts = keys.select(F.col("key").cast("string"))
        count = inputs["local.in"].groupBy(F.lit("all").alias("key")).count()
        given = {"local.all": keys, "files": texts, "rows": texts, "own": texts, "local.count": count}
        return given | ({"table": texts} if NIGHTLY else {})

    def write_batch(self, name: str, frame: DataFrame, batch: Batch) -> None:
        path = Path(self.context.config["app.folder"]) / f"{batch.id}.json"
        path.write_text(json.dumps([row.key for row in frame.collect()]))


def test_every_kind_of_output_has_each_row_once_at_whichever_step_a_driver_ends_and_the_next_goes_on(
    spark: SparkSession,
    postgresql: PostgreSql,
    tmp_path: Path,
    start_pipeline: Callable[..., PipelineUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As above, all incarnations in one Spark, so that there may be many."""
    (folder := tmp_path / "own").mkdir()
    postgresql.sql("DROP TABLE IF EXISTS grete_commits, keys; CREATE TABLE keys (key text)")
    config = {
        "task.inputs": "local.in",
        "task.outputs": "local.all,local.count",
        "task.max.records.per.batch": "20",
        "app.folder": str(folder),
        "systems.local.samza.offset.default": "oldest",
        "systems.local.samza.key.serde": "string",
        "systems.local.samza.msg.serde": "json",
        "outputs.files.format": "json",
        "outputs.files.path": f"{tmp_path}/files",
        "outputs.rows.table": "keys",
        **{f"outputs.rows.{name}": value for name, value in postgresql.config.items()},
    }
    table = {"outputs.table.format": "delta", "outputs.table.path": f"{tmp_path}/table"} if NIGHTLY else {}
    job = start_pipeline(Everywhere, config | table, spark=spark)
    keys = []
    for number, (point, nth) in enumerate(ENDS):
        keys.append(f"{number:03}")
        job.send("local.in", {}, key=keys[-1])
        with monkeypatch.context() as patched:
            patched.setattr(failpoints, "_armed", failpoints._parse(f"{point}:raise:{nth}"))
            with pytest.raises(LogError, match=f"failpoint {point}"):
                job.run()
        job.restart()
    job.run()

    assert sorted(out.key for out in job.outputs("local.all")) == keys
    assert sorted(row.key for row in spark.read.json(f"{tmp_path}/files").collect()) == keys
    assert sorted(row[0] for row in postgresql.sql("TABLE keys")) == keys
    assert sorted(key for path in folder.iterdir() for key in json.loads(path.read_text())) == keys
    if NIGHTLY:
        found = spark.read.format("delta").load(f"{tmp_path}/table").collect()
        assert sorted(row.key for row in found) == keys
    counts = [out.message["count"] for out in job.outputs("local.count")]
    assert counts == sorted(set(counts))
    assert counts[-1] == len(keys)


def values(job: Any, stream: str) -> list[bytes]:
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        return [
            value
            for partition in range(local.partition_count(stream))
            for _, batch in local.read(stream, partition, 0)
            for value in batch.column(1).to_pylist()
        ]
