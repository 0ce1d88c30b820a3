"""Pipelines with several inputs and outputs, run by the command line, begun again and killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
KILLS = [("batch.after-commit", 1)]
if os.environ.get("GRETE_NIGHTLY") == "1":
    KILLS.append(("batch.after-run", 1))

APPLICATION = '''
import grete
from pyspark.sql import functions as F

class Many(grete.DataFramePipeline):
    """A join of two inputs, a union of one with itself, and a table."""

    output_mode = "append"

    def build(self, inputs):
        clicks = inputs["local.clicks"].select("timestamp", F.get_json_object(F.col("value").cast("string"), "$.n").alias("n"))
        shows = inputs["local.shows"].select("timestamp", F.get_json_object(F.col("value").cast("string"), "$.n").alias("n"))
        pairs = clicks.alias("c").join(shows.alias("s"), "n").select("n")
        halves = clicks.where("n % 2 = 0").union(clicks.where("n % 2 = 1")).select("n")
        return {"local.pairs": pairs, "local.halves": halves, "local.thirds": clicks.where("n % 3 = 0").select("n")}
'''  # noqa: E501
PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Many
task.inputs=local.clicks,local.shows
task.outputs=local.pairs,local.halves,local.thirds
task.max.records.per.batch=100
cluster-manager.container.retry.longest-pause.ms=100
systems.local.samza.offset.default=oldest
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def fill(job: Any, first: int, count: int) -> None:
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        for stream in ("clicks", "shows"):
            local.ensure_stream(StreamSpec(stream, 2))
            numbers = range(first, first + count)
            local.append(stream, (Message(b"%d" % n, json.dumps({"n": n}).encode(), n) for n in numbers))


def sent(job: Any) -> dict[str, list[int]]:
    """The numbers in each output, sorted."""
    found: dict[str, list[int]] = {}
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        for stream in ("pairs", "halves", "thirds"):
            found[stream] = sorted(
                int(json.loads(value)["n"])
                for partition in range(local.partition_count(stream))
                for _, batch in local.read(stream, partition, 0)
                for value in batch.column(1).to_pylist()
            )
    return found


@pytest.fixture
def job(tmp_path: Path, job_maker: Callable[[Path, str, str], Any]) -> Any:
    return job_maker(tmp_path, APPLICATION, PROPERTIES)


@pytest.mark.nightly  # three JVMs; kills are in test_pipeline_kills.py, joins in test_testing_pipeline.py
def test_joins_and_unions_of_several_inputs_give_each_row_once_to_each_output_through_kills_and_starts(
    job: Any, tmp_path: Path
) -> None:
    fill(job, 0, 150)
    job.run_through(KILLS, tmp_path / "died")
    fill(job, 150, 150)
    again = job.run()
    assert again.returncode == 0, again.stderr + job.log()
    assert "continuing lineage" in job.log()
    numbers = list(range(300))
    assert sent(job) == {"pairs": numbers, "halves": numbers, "thirds": numbers[::3]}


def test_an_input_that_build_does_not_use_is_named(job: Any) -> None:
    fill(job, 0, 10)
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.ensure_stream(StreamSpec("unused", 1))
    refused = job.run("--set", "task.inputs=local.clicks,local.shows,local.unused")
    assert refused.returncode != 0
    assert "build does not use local.unused: take it out of task.inputs, or use it" in refused.stderr


@pytest.mark.nightly  # 21 s, of which most is waited for brokers that are not there
def test_a_kafka_system_that_a_pipeline_does_not_write_has_no_part_in_its_commits(job: Any) -> None:
    job.configure(
        {
            "job.coordinator.system": "local",
            "systems.local.samza.factory": "local",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.consumer.bootstrap.servers": "127.0.0.1:1",
        }
    )
    fill(job, 0, 10)
    done = job.run()
    assert done.returncode == 0, done.stderr + job.log()
    assert sent(job)["halves"] == list(range(10))
    assert "get stamps" not in job.log()
