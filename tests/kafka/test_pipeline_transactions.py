"""Rows that Spark's connector writes, in one transaction with the checkpoints of their batch.

Tasks send them where they run in the driver's process, as here; else the driver does, which is tested here as well.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.support.topic_records import topic_records

from grete.api import Batch
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import ConfigError, Fenced, LogError
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.spark.session.kafka_options import sink_settings
from grete.spark.sinks import kafka_transaction
from grete.spark.sinks.kafka_senders import DriverSender, Sender, TaskSender
from grete.spark.sinks.kafka_transaction import KafkaTransactions, TransactionalSink
from grete.systems.base import System
from grete.systems.commit_group import CommitGroup
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MAX_RESULTS = "spark.driver.maxResultSize"
PARTITIONS = 2
BATCH = Batch("lineage", 0)


class Pipeline:
    """The transactions of one container's output, epoch after epoch."""

    def __init__(
        self, spark: SparkSession, kafka: KafkaCluster, home: Path, sender: Callable[[Any], Sender]
    ) -> None:
        self._sender = sender
        self.name = f"tx-{uuid.uuid4().hex[:8]}"
        self.log = f"{self.name}-log"
        self.config: Mapping[str, str] = {
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
            "task.commit.groups": "1",
        }
        self._bootstrap = kafka.bootstrap
        self._spark = spark
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(30)
        self.system: System = open_system(Settings.of(self.config), "kafka", home, SystemClock())
        self.system.checkpoint_log(self.log).append([Entry(b"first", b"")])

    def fence(self, epoch: int) -> Fence:
        return Fence(f"container/{self.name}/0", epoch)

    def opened(self, epoch: int, timeout_s: float = 60.0) -> KafkaTransactions:
        """Of a container that has just raised its fence."""
        self.system.raise_fence([self.fence(epoch)])
        made = self.being_opened(epoch, timeout_s)
        made.await_open()
        return made

    def being_opened(self, epoch: int, timeout_s: float = 60.0) -> KafkaTransactions:
        settings = sink_settings(Settings.of(self.config), "kafka")
        streams = [self.name, self.log]
        sender = self._sender(self._spark._jvm)
        made = KafkaTransactions(
            self._spark, self.system, [self.fence(epoch)], streams, settings, timeout_s, SystemClock(), sender
        )
        made.begin_opening()
        return made

    def write(self, transactions: KafkaTransactions, *values: str) -> None:
        rows = self._spark.createDataFrame([(value, value) for value in values], "key string, value string")
        assert not TransactionalSink(self.name, transactions).write(rows.repartition(2), BATCH)

    def group(self, epoch: int, checkpoint: bytes) -> CommitGroup:
        return CommitGroup([self.fence(epoch)], [], self.log, [Entry(b"checkpoint", checkpoint)])

    def rows(self) -> list[str]:
        """The rows that a reader of what is committed gets, sorted."""
        found = topic_records(self._bootstrap, self.name, PARTITIONS)
        return sorted((one.value or b"").decode() for one in found)

    def is_aborted(self, times: int = 1) -> bool:
        """Whether readers of what is committed get past some record of each of these transactions."""
        offsets = self.system.offsets(self.name).values()
        return sum(int(one.upcoming) for one in offsets) > 2 * times

    def checkpoints(self) -> list[bytes | None]:
        return [one.value for one in self.system.checkpoint_log(self.log).read() if one.key == b"checkpoint"]


@pytest.fixture(params=[TaskSender, DriverSender])
def pipeline(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Pipeline]:
    made = Pipeline(spark, kafka, tmp_path, request.param)
    yield made
    made.system.close()


@pytest.fixture
def small_results(spark: SparkSession) -> Iterator[None]:
    """The driver takes no more than 900 kB of a job's results."""
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get(MAX_RESULTS, "512m")
    settings.set(MAX_RESULTS, "900k")
    yield
    settings.set(MAX_RESULTS, before)


def test_rows_of_a_batch_and_its_checkpoints_become_visible_together(pipeline: Pipeline) -> None:
    with closing(pipeline.opened(1)) as transactions:
        pipeline.write(transactions, "a", "b")
        pipeline.write(transactions, "c")  # a second output of the batch
        assert pipeline.rows() == []
        end = transactions.commit(pipeline.group(1, b"one"))[pipeline.log, 0]
        assert pipeline.rows() == ["a", "b", "c"]
        assert pipeline.system.checkpoint_log(pipeline.log).end() == end - 1
        transactions.commit(pipeline.group(1, b"without rows"))
        pipeline.write(transactions, "d")
        transactions.commit(pipeline.group(1, b"three"))
    assert pipeline.rows() == ["a", "b", "c", "d"]
    assert pipeline.checkpoints() == [b"one", b"without rows", b"three"]


def test_a_job_that_ends_waits_until_readers_see_what_it_has_committed(
    pipeline: Pipeline, kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not before its marks are there; an open transaction of another stands for those."""
    other = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{pipeline.name}-other"})
    other.init_transactions()
    for end in (other.commit_transaction, None):
        other.begin_transaction()
        for partition in range(PARTITIONS):
            other.produce(pipeline.name, b"theirs", partition=partition)
        assert other.flush(30) == 0
        with closing(pipeline.opened(1)) as transactions:
            pipeline.write(transactions, "a")
            transactions.commit(pipeline.group(1, b"one"))
            if end is None:
                monkeypatch.setattr(kafka_transaction, "_MARKS_S", 0.2)
                transactions.confirm()
                assert "cannot be read yet: a transaction stays open" in caplog.text
                other.abort_transaction()
                break
            later = threading.Timer(0.5, end)
            later.start()
            transactions.confirm()
            assert not caplog.text
            assert pipeline.rows() == ["a", "theirs", "theirs"]
            later.join()


def test_what_a_batch_has_written_is_never_seen_when_it_is_given_up_and_is_there_once_when_repeated(
    pipeline: Pipeline,
) -> None:
    with closing(pipeline.opened(1)) as given_up:
        pipeline.write(given_up, "a", "b")
    with closing(pipeline.opened(2)) as repeated:
        pipeline.write(repeated, "b", "a", "what has come since")
        repeated.commit(pipeline.group(2, b"one"))
    assert pipeline.rows() == ["a", "b", "what has come since"]
    assert pipeline.checkpoints() == [b"one"]


def test_a_driver_that_goes_on_after_it_was_succeeded_writes_nothing_that_is_seen(pipeline: Pipeline) -> None:
    before, idle = pipeline.opened(1), pipeline.opened(2)
    with closing(before), pytest.raises(Fenced, match="epoch 2"):
        pipeline.write(before, "of one that was fenced before it began")
    with closing(idle):
        pipeline.write(idle, "of one that was fenced in its batch")
        with closing(pipeline.opened(3)) as successor:
            pipeline.write(successor, "a")
            successor.commit(pipeline.group(3, b"one"))
            with pytest.raises(Fenced, match="epoch 3"):
                idle.commit(pipeline.group(2, b"stale"))
            with pytest.raises(Fenced, match="epoch 3"):
                pipeline.write(idle, "and again")
            pipeline.write(successor, "b")
            successor.commit(pipeline.group(3, b"two"))
    assert pipeline.rows() == ["a", "b"]
    assert pipeline.checkpoints() == [b"one", b"two"]


def test_a_stale_driver_that_opens_its_outputs_late_is_refused_and_ends_no_batch(pipeline: Pipeline) -> None:
    with closing(pipeline.opened(2)) as successor:
        pipeline.write(successor, "a")
        with closing(pipeline.being_opened(1)) as stale:
            with pytest.raises(Fenced, match="epoch 2"):
                stale.await_open()
            with pytest.raises(Fenced, match="epoch 2"):
                pipeline.write(stale, "b")
            with pytest.raises(Fenced, match="epoch 2"):
                stale.commit(pipeline.group(1, b"stale"))
        successor.commit(pipeline.group(2, b"one"))
    assert pipeline.rows() == ["a"]


def test_a_timeout_that_the_brokers_do_not_allow_is_named_with_the_key(pipeline: Pipeline) -> None:
    named = r"task\.commit\.transaction\.timeout\.ms"
    pipeline.system.raise_fence([pipeline.fence(1)])
    with closing(pipeline.being_opened(1, timeout_s=10_000)) as refused:
        with pytest.raises(ConfigError, match=named):
            refused.await_open()
        with pytest.raises(ConfigError, match=named):
            pipeline.write(refused, "a")


def test_a_batch_that_is_ready_before_its_outputs_are_open_waits_for_them(pipeline: Pipeline) -> None:
    pipeline.system.raise_fence([pipeline.fence(1)])
    with closing(pipeline.being_opened(1)) as transactions:
        pipeline.write(transactions, "a", "b")
        transactions.commit(pipeline.group(1, b"one"))
    with closing(pipeline.being_opened(1)):
        pass  # nothing of one that is closed while it opens is left
    with closing(pipeline.being_opened(1)) as transactions:
        pipeline.write(transactions, "c")
        transactions.commit(pipeline.group(1, b"two"))
    assert pipeline.rows() == ["a", "b", "c"]


def test_a_batch_that_takes_longer_than_its_transaction_may_fails_and_says_how_to_go_on(
    pipeline: Pipeline,
) -> None:
    with closing(pipeline.opened(1, timeout_s=0.5)) as transactions:
        pipeline.write(transactions, "a", "b")
        eventually(pipeline.is_aborted, "the brokers end the transaction")
        with pytest.raises(LogError, match=r"task\.max\.records\.per\.batch"):
            transactions.commit(pipeline.group(1, b"one"))
    assert pipeline.rows() == []
    with closing(pipeline.opened(1, timeout_s=0.5)) as transactions:
        pipeline.write(transactions, "a")
        eventually(lambda: pipeline.is_aborted(2), "the brokers end the second transaction")
        with pytest.raises(LogError, match=r"task\.max\.records\.per\.batch"):
            pipeline.write(transactions, "b")
    assert pipeline.rows() == []


def test_a_batch_whose_shuffled_rows_are_lost_fails_instead_of_being_repeated_within_its_transaction(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    folders = list(
        spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString()
    )
    lost = [Path(folder) for folder in folders]

    def losing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        for folder in lost:
            for shuffled in folder.glob("*/shuffle_*.data"):
                shuffled.unlink(missing_ok=True)

    rows = spark.range(1_000).selectExpr("cast(id as string) key", "cast(id as string) value").repartition(16)
    with closing(pipeline.opened(1)) as transactions, pytest.raises(Py4JJavaError, match="FetchFailed"):
        TransactionalSink(pipeline.name, transactions).write(rows.mapInArrow(losing, rows.schema), BATCH)
    with closing(pipeline.opened(2)) as repeated:
        repeated.commit(pipeline.group(2, b"one"))
    assert pipeline.rows() == []


@pytest.mark.parametrize("pipeline", [DriverSender], indirect=True)
def test_a_batch_that_is_larger_than_the_drivers_results_may_be_comes_to_it_in_parts(
    pipeline: Pipeline, spark: SparkSession, small_results: None
) -> None:
    kept = spark.sparkContext._jsc.getPersistentRDDs().keySet()
    with closing(pipeline.opened(1)) as transactions:
        for number in range(2):
            values = [f"{number}-{os.urandom(2_000).hex()}" for _ in range(300)]  # 1.2 MB, in two partitions
            pipeline.write(transactions, *values)
            transactions.commit(pipeline.group(1, b"one"))
            assert pipeline.rows()[-300:] == sorted(values)
    assert len(pipeline.rows()) == 600
    assert spark.sparkContext._jsc.getPersistentRDDs().keySet() == kept, (
        "executors need not keep them any longer"
    )
