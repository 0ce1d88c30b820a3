"""Queries of Spark's Structured Streaming go on under grete: no record is lost, and none repeated."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from functools import reduce
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from grete.assembly.submission import RunOptions, submitted_settings
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import JobError
from grete.migration.spark_take_over import execute, take_over_query
from grete.spark.session.container_session import build_session
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

APPLICATION = """
import grete

class Copy(grete.DataFramePipeline):
    output = "kafka.OUT"

    def build(self, inputs):
        return next(iter(inputs.values())).select("value")

class Union(grete.DataFramePipeline):
    output = "kafka.OUT"

    def build(self, inputs):
        first, second = inputs.values()
        return first.union(second).select("value")

class CopyEach(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("kafka.OUT", envelope.message)
"""
PROPERTIES = """
job.name={name}
job.application.path=.
{application}
task.inputs={inputs}
task.outputs=kafka.{out}
task.checkpoint.replication.factor=1
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.default.stream.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


Migrate = Callable[..., tuple[int, Any]]


def frame_of(spark: SparkSession, bootstrap: str, topics: list[str]) -> DataFrame:
    frames = [
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
        for topic in topics
    ]
    return reduce(DataFrame.union, frames).selectExpr("CAST(value AS STRING) AS value")


def run_and_die(bootstrap: str, topics: list[str], checkpoint: str, batch: int) -> None:
    """The whole process of a query, until it has planned this batch."""
    spark = build_session("old", Settings.of({"spark.master": "local[2]"}), kafka_system="kafka")

    def die(rows: DataFrame, number: int) -> None:
        assert number == batch, "the batches before were committed"
        os.kill(os.getpid(), signal.SIGKILL)

    writer = frame_of(spark, bootstrap, topics).writeStream.foreachBatch(die).trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


class Killed(Exception):
    """Ends a query between its offset log and its commit log."""


class Query:
    """A query by hand over topics of its own, and the rows that it wrote."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, sources: int) -> None:
        mark = uuid.uuid4().hex[:8]
        self.spark, self.bootstrap, self.checkpoint = spark, bootstrap, folder / "checkpoint"
        self.topics = [f"old-{number}-{mark}" for number in range(sources)]
        self.out = f"new-{mark}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._made(self.topics)
        self.rows: list[str] = []
        self.sent = 0

    def _made(self, topics: list[str]) -> None:
        for made in self.admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
            made.result(30)

    def create(self, topic: str) -> None:
        """A topic that comes to the others; it has what is sent from now on."""
        self._made([topic])
        self.topics = sorted([*self.topics, topic])

    def send(self, records: int) -> None:
        """Number them on, in each topic."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for topic in self.topics:
            eventually(lambda topic=topic: self.partitions(topic) > 0, f"every broker knows {topic}")
            partitions = self.partitions(topic)
            for number in range(self.sent, self.sent + records):
                producer.produce(topic, f"{topic} {number}".encode(), partition=number % partitions)
        assert producer.flush(30) == 0
        self.sent += records

    def partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def everything(self) -> list[str]:
        return sorted(f"{topic} {number}" for topic in self.topics for number in range(self.sent))

    def run(self, *, killed_in: int | None = None) -> None:
        """Until drained; or killed in this batch, after it was planned."""

        def keep(batch: DataFrame, number: int) -> None:
            if number == killed_in:
                raise Killed
            self.rows += [row.value for row in batch.collect()]

        writer = (
            frame_of(self.spark, self.bootstrap, self.topics)
            .writeStream.foreachBatch(keep)
            .trigger(availableNow=True)
        )
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        if killed_in is None:
            assert query.awaitTermination(patient(120))
        else:
            with pytest.raises(StreamingQueryException, match="Killed"):
                query.awaitTermination(patient(120))

    def kill(self, *, batch: int) -> None:
        """Let a process of its own go on with the query, and die when it has planned this batch."""
        arguments = (self.bootstrap, self.topics, str(self.checkpoint), batch)
        process = get_context("spawn").Process(target=run_and_die, args=arguments)
        process.start()
        process.join(patient(120))
        assert process.exitcode == -signal.SIGKILL


@pytest.fixture
def make_query(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[..., Query]]:
    key = "spark.sql.streaming.offsetLog.formatVersion"

    def make(*, sources: int = 1, version: str = "1") -> Query:
        spark.conf.set(key, version)
        return Query(spark, kafka.bootstrap, tmp_path, sources)

    yield make
    spark.conf.unset(key)


@pytest.fixture
def migrate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Migrate:
    def command(job: Any, query: Query, *words: str) -> tuple[int, Any]:
        monkeypatch.setenv("GRETE_HOME", str(job.home))
        given = ["migrate", "spark", "--checkpoint", str(query.checkpoint), "--config", str(job.config)]
        code = main([*given, "-o", "json", *words])
        out = capsys.readouterr().out
        return code, json.loads(out) if out.startswith("{") else out

    return command


def properties_of(query: Query, application: str) -> str:
    inputs = ",".join(f"kafka.{topic}" for topic in query.topics)
    return PROPERTIES.format(
        application=application, inputs=inputs, out=query.out, bootstrap=query.bootstrap, name=query.out
    )


def values_in(query: Query) -> list[str]:
    """The values of the output's records, in which there is no attempt that failed."""
    consumer = Consumer({"bootstrap.servers": query.bootstrap, "group.id": uuid.uuid4().hex})
    count = len(query.admin.list_topics(query.out, timeout=30).topics[query.out].partitions)
    partitions = [TopicPartition(query.out, partition, 0) for partition in range(count)]
    ends = [consumer.get_watermark_offsets(where, timeout=patient(30))[1] for where in partitions]
    consumer.assign(partitions)
    found: list[str] = []

    def is_read() -> bool:
        while (message := consumer.poll(0.5)) is not None:
            value = message.value()
            assert value is not None
            found.append(value.decode())
        return all(
            max(at.offset, 0) >= end for at, end in zip(consumer.position(partitions), ends, strict=True)
        )

    eventually(is_read, "the output is read to its end")
    consumer.close()
    return found


def said(document: Any) -> str:
    return " ".join(f"{one['what']}: {one['says']}" for one in document["findings"])


def test_a_query_that_died_between_its_logs_goes_on_as_a_pipeline_without_loss_or_repetition(
    make_query: Callable[..., Query],
    migrate: Migrate,
    tmp_path: Path,
    job_maker: Callable[[Path, str, str], Any],
) -> None:
    query = make_query()
    job = job_maker(
        tmp_path, APPLICATION.replace("OUT", query.out), properties_of(query, "app.class=counter:Copy")
    )
    query.send(100)
    query.run()
    query.send(60)
    query.kill(batch=3)
    query.admin.create_partitions([NewPartitions(query.topics[0], 3)])[query.topics[0]].result(30)
    query.send(30)
    code, planned = migrate(job, query)
    assert (code, planned["executed"], planned["committed"], planned["planned"]) == (0, False, 2, 3)
    assert "batch 3 was planned and not committed" in said(planned)
    assert "partitions 2 are not in the query's log yet" in said(planned)
    code, shown = migrate(job, query, "-o", "table")
    assert f"planned and not committed, up to before: {query.topics[0]}.0 " in shown
    assert "nothing was written" in shown
    code, done = migrate(job, query, "--execute", "-o", "table")
    assert code == 0
    assert "were written: `grete run` with this configuration goes on" in done
    ran = job.run()
    assert ran.returncode == 0, ran.stderr + job.log()
    new = values_in(query)
    assert sorted(query.rows + new) == query.everything()
    assert len(new) == query.sent - len(query.rows) > 0
    code, again = migrate(job, query, "--execute")
    assert (code, again["executed"]) == (1, False)
    assert "has checkpoints already" in said(again)


@pytest.mark.nightly  # 22 s; a query of one source goes on in every run
@pytest.mark.one_in(2)
@pytest.mark.parametrize("application", ["app.class=counter:Union", "task.class=counter:CopyEach"])
def test_a_query_of_two_sources_and_of_the_second_version_of_the_log_goes_on_as_a_job_of_both(
    make_query: Callable[..., Query],
    migrate: Migrate,
    tmp_path: Path,
    job_maker: Callable[[Path, str, str], Any],
    application: str,
) -> None:
    query = make_query(sources=2, version="2")
    properties = properties_of(query, application)
    job = job_maker(tmp_path, APPLICATION.replace("OUT", query.out), properties)
    query.send(70)
    query.run()
    query.send(30)
    query.run(killed_in=2)
    query.send(10)
    code, done = migrate(job, query, "--execute")
    assert (code, done["executed"], done["version"]) == (0, True, "v2")
    assert {ssp.rpartition(".")[0] for task in done["tasks"] for ssp in task["checkpoint"]} == {
        f"kafka.{topic}" for topic in query.topics
    }
    ran = job.run(spark=application.startswith("app"))
    assert ran.returncode == 0, ran.stderr
    assert sorted(query.rows + values_in(query)) == query.everything()


def test_a_query_that_goes_on_meanwhile_is_noticed_and_nothing_is_written(
    make_query: Callable[..., Query], tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    query = make_query()
    job = job_maker(
        tmp_path, APPLICATION.replace("OUT", query.out), properties_of(query, "app.class=counter:Copy")
    )
    query.send(10)
    query.run()
    clock = SystemClock()
    settings = submitted_settings(RunOptions(config_paths=[str(job.config)]), job.home, clock)
    found = take_over_query(query.checkpoint, settings, job.home, clock)
    query.send(10)
    query.run()
    with pytest.raises(JobError, match="still runs: batch 1 was planned"):
        execute(found, settings, job.home, clock)
    again = take_over_query(query.checkpoint, settings, job.home, clock)
    assert not again.blocks


def test_what_the_job_and_the_query_do_not_have_in_common_is_named(
    make_query: Callable[..., Query],
    migrate: Migrate,
    tmp_path: Path,
    job_maker: Callable[[Path, str, str], Any],
) -> None:
    query = make_query(sources=2)
    query.send(10)
    query.run()
    left_out, other = query.topics[1], f"other-{query.out}"
    query.admin.create_topics([NewTopic(other, 1, 1)])[other].result(30)
    properties = properties_of(query, "app.class=counter:Copy").replace(left_out, other)
    job = job_maker(tmp_path, APPLICATION.replace("OUT", query.out), properties)
    code, planned = migrate(job, query)
    assert code == 0
    assert f"{left_out}: the query reads this topic, and it is no input of the job" in said(planned)
    assert f"kafka.{other}: the query does not read it: it begins at upcoming" in said(planned)
    offsets = {ssp: one for task in planned["tasks"] for ssp, one in task["checkpoint"].items()}
    assert offsets == {
        f"kafka.{query.topics[0]}.0": "4",
        f"kafka.{query.topics[0]}.1": "4",
        f"kafka.{other}.0": None,
    }


def test_records_that_are_gone_are_said_before_anything_is_written(
    make_query: Callable[..., Query],
    migrate: Migrate,
    tmp_path: Path,
    job_maker: Callable[[Path, str, str], Any],
) -> None:
    query = make_query()
    job = job_maker(
        tmp_path, APPLICATION.replace("OUT", query.out), properties_of(query, "app.class=counter:Copy")
    )
    query.send(20)
    query.run()
    query.send(20)
    where = TopicPartition(query.topics[0], 0, 15)
    query.admin.delete_records([where])[where].result(30)
    code, planned = migrate(job, query, "--execute")
    assert (code, planned["executed"]) == (1, False)
    assert "would read on at offset 10, and the topic holds 15 to 19: records are gone" in said(planned)
