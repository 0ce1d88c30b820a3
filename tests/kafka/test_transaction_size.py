"""Transactions that brokers do not take: too slow a way for their size, and records larger than a topic takes now."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.kafka.kafka_job import Job
from tests.support.tcp_proxy import TcpProxy

from grete.clock import SystemClock
from grete.errors import LogError, ProcessingError
from grete.kafka.client import KafkaConnection
from grete.kafka.producer import BATCH_BYTES, NotWritten, TransactionalProducer, transaction_producer
from grete.tasks.share_loop import ShareLoop
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient


def job_behind(kafka: KafkaCluster, home: Path, timeout_ms: int) -> Job:
    config = {"task.commit.transaction.timeout.ms": str(timeout_ms), "task.commit.groups": "1"}
    return Job(f"127.0.0.1:{kafka.nodes[0].proxied_port}", home, partitions=1, config=config)


def fill(kafka: KafkaCluster, job: Job, records: int, size: int = 100_000) -> None:
    """Large messages, by a way of their own."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(job.sent, job.sent + records):
        value = b'{"filler": "' + os.urandom(size // 2).hex().encode() + b'"}'
        producer.produce(job.input, value, f"key{number % 7}", 0)
    assert producer.flush(60) == 0
    job.sent += records


def step_behind(proxy: TcpProxy, share: ShareLoop, bytes_per_s: float) -> int:
    """Process what is there, commit it over a way of this speed, and return how many records were committed."""
    eventually(lambda: bool(share.process(1.0)), "something to commit")
    proxy.slow_down(bytes_per_s)
    try:
        made = share.commit()
    finally:
        proxy.restore()
    return 0 if made is None else sum(report.records for report in made.reports)


def test_what_is_too_much_for_a_slow_way_to_the_brokers_is_committed_in_smaller_transactions(
    kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(job_behind(kafka, tmp_path, 1000)) as job:
        container = job.container(1)
        share = container.share(container.worker(), 0, commit_s=1.0)
        fill(kafka, job, 7)
        assert step_behind(proxy, share, 1e9) == 7
        fill(kafka, job, 60)
        committed: list[int] = []
        while sum(committed) < 60:
            committed.append(step_behind(proxy, share, 1e6))
        assert 0 in committed, "all that is left is too much, though the first poll may have had little of it"
        assert 1 < sum(1 for count in committed if count) < 60
        job.assert_exactly_once()
        [said, *_] = [one.getMessage() for one in caplog.records if "gave it up" in one.getMessage()]
        for words in (
            "task.commit.transaction.timeout.ms=1000",
            "task.max.records.per.batch",
            "task.max.bytes.per.batch",
        ):
            assert words in said


@pytest.mark.nightly  # waits for a timeout of the client; above it is many records
def test_one_record_that_is_too_much_for_the_way_to_the_brokers_ends_the_share_with_the_reason(
    kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path
) -> None:
    with closing(job_behind(kafka, tmp_path, 1000)) as job:
        container = job.container(1)
        share = container.share(container.worker(), 0)
        fill(kafka, job, 1)
        assert step_behind(proxy, share, 1e9) == 1
        fill(kafka, job, 1, 900_000)
        for _ in range(2):
            assert step_behind(proxy, share, 5e5) == 0
        with pytest.raises(
            LogError, match=r"cannot be made smaller: raise task\.commit\.transaction"
        ) as raised:
            step_behind(proxy, share, 5e5)
        assert not raised.value.may_pass
        again = job.container(2)
        again.run(again.worker())
        job.assert_exactly_once()


@pytest.mark.parametrize("place", ["last", "in the middle"])
def test_an_output_that_its_topic_takes_no_more_names_its_record_and_the_topic(
    kafka: KafkaCluster, tmp_path: Path, place: str
) -> None:
    """Limits are remembered while a share runs; an operator who lowers one is noticed by the brokers' refusal."""
    with closing(Job(kafka.bootstrap, tmp_path, partitions=1, config={"task.commit.groups": "1"})) as job:
        container = job.container(1)
        share = container.share(container.worker(), 0, commit_s=1.0)
        fill(kafka, job, 5, 50_000)
        eventually(lambda: share.step(1.0) is not None, "a commit")
        set_largest(kafka, job.output, 20_000)
        fill(kafka, job, 1, 50_000)
        if place == "in the middle":
            job.send(f"key{job.sent % 7}", b"{}", 0)
            job.sent += 1
        with pytest.raises(ProcessingError, match=rf"larger than the topic takes.* topic {job.output}"):
            eventually(lambda: share.step(1.0) is not None, "a commit")
        set_largest(kafka, job.output, 1_000_000)
        again = job.container(2)
        again.run(again.worker())
        job.assert_exactly_once()


def test_records_that_their_topic_takes_go_on_in_smaller_batches_when_its_limit_was_lowered(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    with closing(Job(kafka.bootstrap, tmp_path, partitions=1, config={"task.commit.groups": "1"})) as job:
        container = job.container(1)
        share = container.share(container.worker(), 0, commit_s=1.0)
        fill(kafka, job, 5, 10_000)
        eventually(lambda: share.step(1.0) is not None, "a commit")
        set_largest(kafka, job.output, 20_000)
        fill(kafka, job, 30, 10_000)
        eventually(lambda: share.step(1.0) is not None, "a commit")
        container.run(container.worker())
        job.assert_exactly_once()


def test_a_record_of_5_mb_goes_through_where_its_topics_take_it(kafka: KafkaCluster, tmp_path: Path) -> None:
    """No setting of a client is needed: what grete's clients send and fetch follows from the topics."""
    config = {
        "task.commit.groups": "1",
        "systems.kafka.default.stream.max.message.bytes": "8000000",
        "stores.counts.changelog.max.message.bytes": "8000000",
    }
    with closing(Job(kafka.bootstrap, tmp_path, partitions=1, config=config)) as job:
        set_largest(kafka, job.input, 8_000_000)
        large = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 8_000_000})
        errors: list[object] = []

        def is_taken() -> bool:
            value = b'{"filler": "' + os.urandom(2_500_000).hex().encode() + b'"}'
            large.produce(job.input, value, "key0", 0, on_delivery=lambda error, _: errors.append(error))
            large.flush(60)
            return errors[-1] is None

        eventually(is_taken, "the limit, which a broker learns of later")
        job.sent += 1
        container = job.container(1)
        container.run(container.worker())
        job.assert_exactly_once()


def test_records_behind_a_batch_that_its_topic_refused_say_why_they_were_not_written(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    """The last record, the only one that is reported, is small enough: the client purges it."""
    connection = KafkaConnection({"bootstrap.servers": kafka.bootstrap}, 20.0, SystemClock())
    deadline_s = time.monotonic() + patient(60.0)
    with closing(Job(kafka.bootstrap, tmp_path, partitions=1)) as job:
        set_largest(kafka, job.input, 20_000)
        eventually(lambda: is_refused(kafka, job.input, 30_000), "the limit, which a broker learns of later")
        producer = TransactionalProducer(
            lambda: transaction_producer(connection, f"refused-{job.mark}", 60.0), SystemClock()
        )
        producer.open(deadline_s)
        producer.begin()
        values = [bytes(10_000)] * (BATCH_BYTES // 10_000 + 1)
        producer.produce_columns(job.input, 0, ([b"key"] * len(values), values, [0] * len(values)))
        with pytest.raises(NotWritten, match="MSG_SIZE_TOO_LARGE") as refused:
            producer.settle(deadline_s)
        assert refused.value.is_final
        with pytest.raises(NotWritten, match="MSG_SIZE_TOO_LARGE"):
            producer.produce(job.input, 0, b"key", b"after it")
        producer.abort(deadline_s)
        assert producer.is_open


def is_refused(kafka: KafkaCluster, topic: str, size: int) -> bool:
    """Whether the broker refuses a message of this size; one that it takes is in the topic."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, bytes(size), on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    return errors[0] is not None


def set_largest(kafka: KafkaCluster, topic: str, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
