"""Spark's connector under a pipeline: columns, partitions, headers, and which rows count."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from grete.checkpoint.output_commits import LineageCommits, OutputCommits, WriterAttempt
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import ConfigError, JobError, OffsetOutOfRange
from grete.model.ids import SystemStreamPartition
from grete.spark.committed_rows import committed_rows
from grete.spark.pipeline.kafka_source import KafkaSourceSpec, explain_data_loss, read_stream
from grete.spark.session.kafka_options import sink_settings, source_settings
from grete.spark.sinks import kafka as kafka_sink
from grete.spark.sinks.kafka import may_be_reordered, runs_tasks_once
from grete.spark.sinks.rows import key_and_value
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.partitioner import partition_of
from grete.testing.kafka_broker import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FIRST, SECOND = WriterAttempt("words-1", "0", 1, 1), WriterAttempt("words-1", "0", 2, 1)
PARTITIONS = 3


@pytest.fixture(scope="module")
def settings(kafka: KafkaCluster) -> Settings:
    return Settings.of(
        {
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
        }
    )


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    name = f"rows-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    return name


@pytest.fixture
def system(settings: Settings, tmp_path: Path) -> Iterator[System]:
    opened = open_system(settings, "kafka", tmp_path, SystemClock())
    yield opened
    opened.close()


def rows_of(spark: SparkSession, settings: Settings, topic: str) -> DataFrame:
    options = {**source_settings(settings, "kafka"), "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("kafka").options(**options).load()


def write(settings: Settings, topic: str, rows: DataFrame, batch: int, attempt: WriterAttempt) -> None:
    written = kafka_sink.records(rows, batch, attempt, PARTITIONS)
    kafka_sink.write(written, sink_settings(settings, "kafka"), topic)


def test_rows_without_a_value_are_json_objects_by_the_same_bytes_on_every_system(spark: SparkSession) -> None:
    rows = spark.sql("select 'AA' key, 3 flights, cast(null as double) mean, timestamp'2013-01-01 05:17' at")
    wanted = b'{"flights":3,"mean":null,"at":"2013-01-01T05:17:00.000Z"}'
    for given in (key_and_value(rows), kafka_sink.plain_records(rows)):
        assert [(bytes(row.key), bytes(row.value)) for row in given.collect()] == [(b"AA", wanted)]
    assert [tuple(row) for row in key_and_value(rows.select("key")).collect()] == [(bytearray(b"AA"), None)]


def test_without_stamps_records_have_the_headers_that_the_pipeline_gives_them(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    rows = spark.sql(
        "select 'k' key, 1 as n, 2 as partition, array(struct('h' key, cast('x' as binary) value)) headers "
        "union all select null, 2, null, null"
    )
    kafka_sink.write(kafka_sink.plain_records(rows), sink_settings(settings, "kafka"), topic)
    found = sorted(rows_of(spark, settings, topic).collect(), key=lambda row: bytes(row.value))
    assert [bytes(row.value) for row in found] == [b'{"n":1}', b'{"n":2}']
    assert [row.headers for row in found] == [[("h", b"x")], None]
    assert (found[0].partition, found[1].key) == (2, None)


def test_a_stream_has_the_columns_of_every_system_and_headers_when_asked(
    spark: SparkSession, settings: Settings, kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for i in range(6):
        producer.produce(topic, b"v%d" % i, b"k", i % 2, timestamp=1_000 + i, headers=[("h", b"x")])
    assert producer.flush(30) == 0
    starting = {SystemStreamPartition("kafka", topic, p): p for p in range(2)}
    frame = read_stream(spark, settings, KafkaSourceSpec("kafka", starting, 2, with_headers=True))
    layout = "stream string, partition int, offset bigint, key binary, value binary, timestamp timestamp"
    types = [f"{name} {of}" for name, of in frame.dtypes]
    assert ", ".join(types) == f"{layout}, headers array<struct<key:string,value:binary>>"
    batches = drained(frame, tmp_path)
    assert max(len(batch) for batch in batches) <= 2
    found = [row for batch in batches for row in batch]
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in found) == [
        (0, 0, b"v0"),
        (0, 1, b"v2"),
        (0, 2, b"v4"),
        (1, 1, b"v3"),
        (1, 2, b"v5"),
    ]
    assert {row.stream for row in found} == {f"kafka.{topic}"}


def drained(
    frame: DataFrame, directory: Path, look: Callable[[DataFrame], Any] = DataFrame.collect
) -> list[Any]:
    """A view of each batch, by default its rows, until nothing is left."""
    batches: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append(look(batch)))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return batches


def test_records_that_are_gone_are_reported_by_their_offsets(
    spark: SparkSession,
    settings: Settings,
    kafka: KafkaCluster,
    topic: str,
    system: System,
    tmp_path: Path,
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for i in range(10):
        producer.produce(topic, b"v%d" % i, b"k", 0)
    assert producer.flush(30) == 0
    where = TopicPartition(topic, 0, 7)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([where])[where].result(30)
    ssp = SystemStreamPartition("kafka", topic, 0)
    with pytest.raises(StreamingQueryException) as failed:
        drained(read_stream(spark, settings, KafkaSourceSpec("kafka", {ssp: 2}, 100)), tmp_path)
    with pytest.raises(OffsetOutOfRange, match=r"the offsets from 2 to before 7 are gone.*rewind --ssp"):
        explain_data_loss(JobError(str(failed.value)), {str(ssp): 2}, {"kafka": system})
    explain_data_loss(JobError("another failure"), {str(ssp): 2}, {"kafka": system})


def test_keys_headers_and_partitions_of_a_record(spark: SparkSession, settings: Settings, topic: str) -> None:
    layout = "key string, a int, b string, headers array<struct<key:string,value:binary>>, partition int"
    rows = spark.createDataFrame(
        [("k1", 1, None, None, None), ("k2", 2, "x", [("own", b"h")], 2), (None, 3, "y", None, None)], layout
    )
    write(settings, topic, rows, 4, FIRST)
    found = {json.loads(row.value)["a"]: row for row in rows_of(spark, settings, topic).collect()}
    assert json.loads(found[1].value) == {"a": 1, "b": None}
    assert (bytes(found[1].key), found[1].partition) == (b"k1", partition_of(b"k1", PARTITIONS))
    assert (bytes(found[2].key), found[2].partition) == (b"k2", 2)
    assert found[3].key is None
    headers = {header.key: bytes(header.value) for header in found[2].headers}
    prefix, sequence = headers.pop("grete-stamp").rsplit(b".", 1)
    assert prefix == b"words-1/0.1.1.4"
    assert sequence.isdigit()
    assert headers == {"own": b"h"}
    with pytest.raises(ConfigError, match="column 'value' must be string or binary, it is int"):
        kafka_sink.records(spark.createDataFrame([(1,)], "value int"), 0, FIRST, PARTITIONS)


def test_of_what_is_in_a_topic_the_rows_of_committed_batches_count_once(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    rows = spark.createDataFrame([("k", "first"), ("k", "second")], "key string, value string")
    write(settings, topic, rows, 0, FIRST)
    write(settings, topic, rows, 0, FIRST)  # as if Spark had run its tasks twice
    write(settings, topic, rows, 1, FIRST)  # this attempt ended here
    write(settings, topic, rows, 1, SECOND)
    write(settings, topic, rows, 2, SECOND)  # not committed yet
    foreign = rows.limit(1).selectExpr("key", "'foreign' as value")
    kafka_sink.write(foreign, sink_settings(settings, "kafka"), topic)
    commits = OutputCommits([LineageCommits("l1").with_batch(0, FIRST).with_batch(1, SECOND)])
    counted = committed_rows(rows_of(spark, settings, topic), commits)
    texts = sorted(bytes(row.value).decode() for row in counted.collect())
    assert texts == ["first", "first", "foreign", "second", "second"]
    assert counted.columns == rows_of(spark, settings, topic).columns


def test_rows_that_spark_could_not_write_twice_are_not_numbered_and_all_count(
    spark: SparkSession, settings: Settings, topic: str
) -> None:
    rows = spark.createDataFrame(
        [("k", "same"), ("k", "same"), (None, "keyless")], "key string, value string"
    )
    for batch, attempt in ((0, FIRST), (1, FIRST), (1, SECOND)):
        written = kafka_sink.records(rows, batch, attempt, PARTITIONS, is_run_once=True)
        kafka_sink.write(written, sink_settings(settings, "kafka"), topic)
    [stamp, *_] = {
        bytes(header.value) for row in rows_of(spark, settings, topic).collect() for header in row.headers
    }
    assert stamp.endswith(b".-")
    commits = OutputCommits([LineageCommits("l1").with_batch(0, FIRST).with_batch(1, SECOND)])
    counted = committed_rows(rows_of(spark, settings, topic), commits)
    assert sorted(bytes(row.value) for row in counted.collect()) == [b"keyless"] * 2 + [b"same"] * 4


@pytest.mark.parametrize(
    ("master", "once"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", False),
        ("spark://h:7077", False),
    ],
)
def test_only_a_local_master_runs_no_task_twice(master: str, once: bool) -> None:
    assert runs_tasks_once(master) is once


def test_rows_whose_order_may_change_are_kept_before_they_are_numbered(
    spark: SparkSession, settings: Settings, kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"v", b"k", 0)
    assert producer.flush(30) == 0
    spec = KafkaSourceSpec("kafka", {SystemStreamPartition("kafka", topic, 0): 0}, 100)
    frame = read_stream(spark, settings, spec)
    assert drained(frame, tmp_path / "as it comes", may_be_reordered) == [False]
    assert drained(frame.repartition(2), tmp_path / "shuffled", may_be_reordered) == [True]
