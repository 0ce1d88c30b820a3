"""Logs and diagnostics of a job in topics, as Samza's StreamAppender writes them (S2-120, S2-122)."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.diagnostics.observe import observed
from grete.errors import StreamError
from grete.model.ids import JobId, SystemStream
from grete.systems.base import Message
from grete.systems.kafka.plain import PlainTopic
from grete.systems.log_sink import LogStream
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = pytest.mark.fault
CONTAINER = "samza-container-1"


@pytest.fixture
def job() -> JobId:
    return JobId(f"diagnosed-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def config(kafka: KafkaCluster, job: JobId) -> Mapping[str, str]:
    return {
        "job.name": job.name,
        "job.container.count": "3",
        "task.log4j.system": "kafka",
        "job.diagnostics.enabled": "true",
        "metrics.reporter.diagnosticsreporter.stream": f"kafka.{job.name}-diagnostics",
        "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
        "systems.kafka.default.stream.replication.factor": "1",
        "systems.kafka.default.stream.retention.ms": "86400000",
    }


def records(kafka: KafkaCluster, topic: str) -> Iterator[tuple[int, str, Any]]:
    """Partition, key and document of all there are; no transaction holds readers back."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    for partition in consumer.list_topics(topic, timeout=patient(30)).topics[topic].partitions:
        where = TopicPartition(topic, partition, 0)
        end = consumer.get_watermark_offsets(where, timeout=patient(30))[1]
        consumer.assign([where])
        for _ in range(end):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            yield partition, (message.key() or b"").decode(), json.loads(message.value() or b"")
    consumer.close()


def test_what_a_container_says_is_in_its_jobs_topics(
    kafka: KafkaCluster, job: JobId, config: Mapping[str, str], tmp_path: Path
) -> None:
    """A partition for each container, all that one says in one of them and in order."""
    with observed(Settings.of(config), job, CONTAINER, tmp_path):
        for number in range(1_000):
            logging.getLogger("talker").warning("saw %d", number)
    topic = f"__samza_{job.name}_1_logs".replace("-", "_")
    found = [(at, key, event) for at, key, event in records(kafka, topic) if event["logger_name"] == "talker"]
    assert [event["message"] for _, _, event in found] == [f"saw {number}" for number in range(1_000)]
    assert len({at for at, _, _ in found}) == 1
    assert {key for _, key, _ in found} == {CONTAINER}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert len(admin.list_topics(topic, timeout=patient(30)).topics[topic].partitions) == 3

    diagnostics = [event for _, _, event in records(kafka, f"{job.name}-diagnostics")]
    assert diagnostics[0]["header"]["container-name"] == CONTAINER


def test_more_than_the_client_holds_goes_out_in_parts_and_a_topic_grows_with_the_containers(
    kafka: KafkaCluster, config: Mapping[str, str], job: JobId
) -> None:
    stream = SystemStream("kafka", f"{job.name}-plain")
    with closing(PlainTopic(LogStream(stream, Settings.of(config), Path(), 1, -1), SystemClock())) as topic:
        topic.write([Message(b"k", b"%d" % number, 1) for number in range(150_000)])
    with closing(PlainTopic(LogStream(stream, Settings.of(config), Path(), 2, -1), SystemClock())) as topic:
        topic.write([Message(b"k", b"0", 1, 1)])
        with pytest.raises(StreamError, match="partitions 0 to 1, not 2"):
            topic.write([Message(b"k", b"0", 1, 2)])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(stream.stream, p), timeout=patient(30))[1]
        for p in range(2)
    ]
    assert ends == [150_000, 1]
