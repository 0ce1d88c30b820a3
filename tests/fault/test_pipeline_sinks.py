"""A pipeline with an output of every kind, killed between any two steps: each row is in each of them once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.postgresql import PostgreSql

from grete.clock import SystemClock
from grete.failpoints import POINTS
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(900)]

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
task.max.records.per.batch=100
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
RECORDS = 300
SINKS = [name for name in POINTS if name.startswith("sink.")]
KILLS = [
    ("sink.committed", 1),
    ("sink.staged", 2),
    ("sink.moved", 1),
    ("sink.committed", 3),
    ("batch.after-run", 1),
]
MORE = [
    *((name, nth) for nth in (1, 2) for name in SINKS),
    *(("batch.before-run", 2), ("batch.after-commit", 1), ("commit.in-transaction", 1)),
    *(("container.lineage-decided", 1), ("sink.committed", 4), ("sink.committed", 5), ("sink.committed", 6)),
]


def test_every_kind_of_output_has_each_row_once_wherever_the_container_is_killed(
    spark: SparkSession, postgresql: PostgreSql, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    assert {name for name, _ in KILLS} >= set(SINKS)
    job = job_maker(tmp_path, APPLICATION, PROPERTIES.format(path=tmp_path))
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


def values(job: Any, stream: str) -> list[bytes]:
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        return [
            value
            for partition in range(local.partition_count(stream))
            for _, batch in local.read(stream, partition, 0)
            for value in batch.column(1).to_pylist()
        ]
