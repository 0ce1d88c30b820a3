"""Outputs of a pipeline that are slow or full, an input that was recreated: waiting or an error, each row once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.postgresql import PostgreSql

import grete
from grete.clock import SystemClock
from grete.errors import ApplicationError, ConfigError, JobError
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.pipeline import PipelineUnderTest
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]

RECORDS = 400
APPLICATION = '''
import json
import pathlib
import time

import grete
from pyspark.sql import functions as F

class Wide(grete.DataFramePipeline):
    """The same numbers into three kinds of outputs, a kilobyte each."""

    def build(self, inputs):
        numbers = inputs["local.in"].select(F.col("value").cast("string").cast("int").alias("n"))
        wide = numbers.withColumn("pad", F.repeat(F.col("n").cast("string"), 1_000))
        return {"local.all": wide, "files": wide, "own": numbers}

    def write_batch(self, name, frame, batch):
        time.sleep(5)
        pathlib.Path(f"{name}-{batch.id}.json").write_text(json.dumps([row.n for row in frame.collect()]))
'''
PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Wide
task.inputs=local.in
task.outputs=local.all
job.coordinator.lease.ttl.ms=1500
job.coordinator.monitor-container.silent.ms=1500
systems.local.samza.offset.default=oldest
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
outputs.files.format=parquet
outputs.files.path={path}/files
"""
SMALL_DISKS = r"""
for disk in "$STAGED" "$FILES"; do
  mkdir -p "$disk" && mount -t tmpfs -o size=4m none "$disk" || exit 99
  cat /dev/zero > "$disk/_filler" 2> /dev/null
done
(
  until grep -qs "waits, and starts.*no room for a batch's rows" "$LOG"; do sleep 0.2; done
  rm "$STAGED/_filler"
  until grep -qs "TASK_WRITE_FAILED.*$FILES" "$LOG"; do sleep 0.2; done
  rm "$FILES/_filler"
) &
"$@"
code=$?
cp -r "$FILES" "$KEPT"
exit $code
"""
"""Two file systems of this process alone: they are full until the job has said so of the one, then of the other."""


@pytest.mark.nightly
def test_full_outputs_are_waited_for_and_a_slow_one_holds_its_container_and_each_row_is_there_once(
    spark: SparkSession, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    job = job_maker(tmp_path, APPLICATION, PROPERTIES.format(path=tmp_path))
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", 1))
        local.append("in", (Message(None, b"%d" % n, n) for n in range(RECORDS)))
    container = job.home / "jobs" / "counter-1"
    disks = {
        "STAGED": str(container / "container-0" / "staged"),
        "FILES": str(tmp_path / "files"),
        "LOG": str(container / "logs" / "container-0.log"),
        "KEPT": str(tmp_path / "kept"),
    }
    alone = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["unshare", *alone, "sh", "-c", SMALL_DISKS, "sh"]
    done = subprocess.run(
        [*command, *job.command("run", "--until-drained", "--quiet")],
        env=job.environment(**disks),
        capture_output=True,
        text=True,
        timeout=patient(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr + job.report()
    log = job.log()
    waited = log.index("container 0 waits, and starts its work again until it can go on: no room")
    assert waited < log.index("TASK_WRITE_FAILED") < log.index("container 0 goes on")
    numbers = list(range(RECORDS))
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        values = [value for _, batch in local.read("all", 0, 0) for value in batch.column(1).to_pylist()]
    assert sorted(json.loads(value)["n"] for value in values) == numbers
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "kept")).collect()) == numbers
    own = [n for path in job.config.parent.glob("own-*.json") for n in json.loads(path.read_text())]
    assert sorted(own) == numbers
    assert log.count("starting lineage") == 1, "neither fault has cost the container its place"


INTO_A_TABLE = """
import grete
from pyspark.sql import functions as F

class Rows(grete.DataFramePipeline):
    def build(self, inputs):
        return {"rows": inputs["local.in"].select(F.col("value").cast("string").cast("int").alias("n"))}
"""
TABLE_PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Rows
task.inputs=local.in
task.max.records.per.batch=50
systems.local.samza.offset.default=oldest
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
outputs.rows.table=numbers
"""
AWAY_S = 60


@pytest.mark.nightly
def test_a_database_that_is_away_for_a_minute_costs_no_row_and_its_container_goes_on(
    postgresql: PostgreSql, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    """The container that waits is the one that goes on: its process, its Spark and its lineage."""
    job = job_maker(tmp_path, INTO_A_TABLE, TABLE_PROPERTIES)
    job.configure({f"outputs.rows.{name}": value for name, value in postgresql.config.items()})
    postgresql.sql("DROP TABLE IF EXISTS grete_commits, numbers; CREATE TABLE numbers (n int)")

    def written() -> list[int]:
        return sorted(int(row[0]) for row in postgresql.sql("TABLE numbers"))

    with closing(LocalSystem(job.home / "local", SystemClock())) as local:

        def send(first: int) -> None:
            local.append("in", (Message(None, b"%d" % n, n) for n in range(first, first + RECORDS)))

        local.ensure_stream(StreamSpec("in", 1))
        send(0)
        running = subprocess.Popen(job.command("run", "--quiet"), env=job.environment())
        try:
            eventually(lambda: len(written()) == RECORDS, "the rows are in the table")
            postgresql.stop()
            send(RECORDS)
            eventually(lambda: "container 0 waits" in job.log(), "the container has noticed")
            time.sleep(AWAY_S)
            postgresql.start()
            eventually(lambda: len(written()) >= 2 * RECORDS, "the other rows are there as well")
            eventually(lambda: "container 0 goes on" in job.log(), "it says so")
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(timeout=patient(60)) == 0
    assert written() == list(range(2 * RECORDS))
    assert job.log().count("starting lineage") == 1


class Both(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.a"].select("key").unionByName(inputs["local.b"].select("key"))


def test_one_of_two_inputs_that_was_recreated_stops_the_pipeline_until_a_start_is_named(
    start_pipeline: Callable[..., PipelineUnderTest], spark: SparkSession
) -> None:
    config = {
        "task.inputs": "local.a,local.b",
        "task.outputs": "local.out",
        "systems.local.samza.offset.default": "oldest",
        "systems.local.samza.key.serde": "string",
        "systems.local.samza.msg.serde": "json",
    }
    job = start_pipeline(Both, config, spark=spark)
    for n in range(3):
        job.send("local.a", {}, key=f"a{n}")
        job.send("local.b", {}, key=f"b{n}")
    job.run()
    job.kill()
    with closing(LocalSystem(job.directory / "local", SystemClock())) as local:
        local.delete_stream("b")
        local.create_stream(StreamSpec("b", 1))
        local.append("b", [Message(b"new", b"{}", n) for n in range(5)])
    with pytest.raises(
        JobError,
        match=r"local\.b was deleted and recreated.*rewind --job \w+ --ssp local\.b --to oldest --state discard",
    ):
        job.restart()
    job.restart(config={"systems.local.streams.b.samza.reset.offset": "true"})
    job.run()
    keys = [out.key for out in job.outputs("local.out")]
    assert sorted(keys) == ["a0", "a1", "a2", "b0", "b1", "b2", *["new"] * 5]


class Importing(grete.DataFramePipeline):
    """Its function imports the module that a message names."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        imported = F.udf(lambda name: __import__(name).__name__, "string")
        return inputs["local.in"].select("key", imported(F.col("value").cast("string")).alias("value"))


def test_a_function_that_fails_is_named_with_its_executor_and_a_missing_module_is_tried_again_only_later(
    start_pipeline: Callable[..., PipelineUnderTest], spark: SparkSession
) -> None:
    config = {
        "task.inputs": "local.in",
        "task.outputs": "local.out",
        "systems.local.samza.offset.default": "oldest",
        "systems.local.streams.in.samza.msg.serde": "string",
        "systems.local.streams.out.samza.msg.serde": "string",
    }
    named = r"no module 'no_such_module' on \S+ \(executor driver\)"
    job = start_pipeline(Importing, config | {"task.max.records.per.batch": "1"}, spark=spark)
    job.send("local.in", "json", key=b"k")
    job.send("local.in", "no_such_module", key=b"k")
    with pytest.raises(JobError, match=f"{named}.*so the container begins again"):
        job.run()
    job.restart()
    with pytest.raises(ConfigError, match=named):
        job.run()
    assert [out.message for out in job.outputs("local.out")] == ["json"]


class Exiting(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        sys.exit(0)


def test_a_build_that_exits_is_no_job_that_has_done_its_work(
    start_pipeline: Callable[..., PipelineUnderTest], spark: SparkSession
) -> None:
    job = start_pipeline(Exiting, {"task.inputs": "local.in", "task.outputs": "local.out"}, spark=spark)
    job.send("local.in", b"1")
    with pytest.raises(ApplicationError, match=r"Exiting\S* failed: it has called sys.exit\(0\)"):
        job.run()
