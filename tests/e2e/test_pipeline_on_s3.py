"""A pipeline that writes files into S3, by Hadoop's file system and a gateway that speaks S3, killed at its steps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.counter_job import CounterJob

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.spark.sinks.file_list import LIST
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually, patient
from grete_workbench.object_stores import ObjectStore, of_spark

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
RECORDS, BATCH = 300, 25
APPLICATION = """
import grete
from pyspark.sql import functions as F

class Files(grete.DataFramePipeline):
    def build(self, inputs):
        n = F.col("value").cast("string").cast("int")
        return {"files": inputs["local.in"].select(n.alias("n"), (n % 3).alias("third"))}
"""
PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Files
task.inputs=local.in
task.max.records.per.batch={batch}
cluster-manager.container.retry.longest-pause.ms=100
cluster-manager.container.retry.count=-1
systems.local.samza.offset.default=oldest
spark.master=local[2]
outputs.files.format=parquet
outputs.files.path=s3a://lake/files
outputs.files.partition.by=third
"""
KILLS = [("sink.staged", 1), ("sink.committed", 1), ("sink.staged", 2), ("sink.committed", 2)]
READ = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
rows = builder.getOrCreate().read.parquet("s3a://lake/files").collect()
print(json.dumps([[row.n, row.third, row.grete_batch] for row in rows]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """Signed requests, and objects that are made where there are none."""
    store = ObjectStore(tmp_path / "store", settings={"speaks": "s3"})
    store.start()
    try:
        yield store
    finally:
        store.stop()


@pytest.fixture
def of_s3(store: ObjectStore) -> dict[str, str]:
    """Spark's settings by which it reaches the store."""
    return of_spark(store)


@pytest.fixture
def job(
    tmp_path: Path, of_s3: dict[str, str], job_maker: Callable[[Path, str, str], CounterJob]
) -> CounterJob:
    """With its input."""
    job = job_maker(tmp_path, APPLICATION, PROPERTIES.format(batch=BATCH))
    job.configure(of_s3)
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", 2))
        local.append("in", (Message(b"%d" % n, b"%d" % n, n) for n in range(RECORDS)))
    return job


def test_each_row_is_in_s3_once_wherever_the_container_is_killed(
    tmp_path: Path, store: ObjectStore, of_s3: dict[str, str], job: CounterJob
) -> None:
    files = store.make_bucket("lake") / "files"
    job.run_through(KILLS, tmp_path / "died")

    rows = read(of_s3)
    assert sorted(row[:2] for row in rows) == [[n, n % 3] for n in range(RECORDS)]
    assert len({row[2] for row in rows}) >= RECORDS // BATCH
    names = [one.name for one in (files / LIST).iterdir()]
    assert [name for name in names if re.fullmatch(r"\d*9\.compact", name)], names
    written = len(list(files.rglob("part-*.parquet")))
    assert written > len(listed(files)), "what a killed container has written is there and is not listed"


def test_a_store_that_is_away_for_longer_than_its_client_tries_is_waited_for(
    store: ObjectStore, of_s3: dict[str, str], job: CounterJob
) -> None:
    files = store.make_bucket("lake") / "files"
    job.configure(
        {
            "spark.hadoop.fs.s3a.attempts.maximum": "1",
            "spark.hadoop.fs.s3a.retry.limit": "1",
            "cluster-manager.container.retry.count": "0",
        }
    )
    running = subprocess.Popen(
        job.command("run", "--until-drained", "--quiet"),
        env=job.environment(
            GRETE_FAILPOINT="sink.committed:delay:1,sink.committed:delay:2", GRETE_FAILPOINT_CONTAINER="0"
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: len(listed(files)) > 0, "a batch is there", within_s=120)
        store.stop()
        eventually(
            lambda: "does not answer" in job.log() or "FilesUnreachable" in job.log(),
            "it is said",
            within_s=120,
        )
        store.start()
        assert running.wait(patient(200)) == 0, job.log()[-4_000:]
    finally:
        running.kill()
        running.wait()
    assert sorted(row[0] for row in read(of_s3)) == list(range(RECORDS))


def read(of_s3: dict[str, str]) -> list[tuple[int, int, str]]:
    """All rows, by a Spark that knows nothing of grete."""
    command = [sys.executable, "-c", READ, json.dumps(of_s3)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(200), check=True)
    rows: list[tuple[int, int, str]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def listed(files: Path) -> set[str]:
    """Paths of all files that the list names, behind the gateway."""
    entries = [one for one in (files / LIST).iterdir() if one.is_file()] if (files / LIST).is_dir() else []
    return {json.loads(line)["path"] for one in entries for line in one.read_text().splitlines()[1:]}
