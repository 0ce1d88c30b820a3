"""Decoded columns and dead letters on Kafka: in the transaction of their batch."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.schema_registry import schema_registry
from tests.support.topic_records import topic_records

from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.serdes import stream_serdes
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(300)]
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
APPLICATION = """
import grete

class Orders(grete.DataFramePipeline):
    output = "kafka.{topic}-out"

    def build(self, inputs):
        return inputs["kafka.{topic}"].select("key", "value.*")
"""
PROPERTIES = """
job.name={topic}
job.application.path=.
app.class=counter:Orders
task.inputs=kafka.{topic}
task.outputs=kafka.{topic}-out
task.max.records.per.batch=4
task.checkpoint.replication.factor=1
task.drop.deserialization.errors=true
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.samza.key.serde=long
systems.kafka.samza.msg.serde=order
systems.kafka.default.stream.pipeline.columns=decoded
systems.kafka.default.stream.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
serializers.registry.order.class=avro-registry
serializers.registry.order.schema={schema}
serializers.registry.order.auto.register.schemas=true
serializers.registry.order.schema.registry.url={registry}
cluster-manager.container.retry.count=-1
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def committed(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values that a reader of what is committed gets."""
    partitions = len(
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic).topics[topic].partitions
    )
    return [(one.key, one.value) for one in topic_records(bootstrap, topic, partitions)]


@pytest.mark.nightly  # e2e/test_pipeline_serdes.py has dead letters, test_pipelines.py batches that are killed
def test_rows_and_dead_letters_of_a_batch_that_is_killed_and_of_an_input_that_grew_are_committed_once(
    kafka: KafkaCluster, tmp_path: Path, job_maker: Callable[..., Any]
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    with schema_registry() as registry:
        properties = PROPERTIES.format(
            topic=topic, bootstrap=kafka.bootstrap, registry=registry.url, schema=json.dumps(ORDER)
        )
        config = dict(line.split("=", 1) for line in properties.splitlines() if line)
        serdes = stream_serdes(SystemStream("kafka", topic), Settings.of(config))

        def fill(numbers: range, partition: int) -> None:
            producer = Producer({"bootstrap.servers": kafka.bootstrap})  # a new one knows of new partitions
            for number in numbers:
                key = serdes.key.to_bytes(number)
                producer.produce(topic, serdes.message.to_bytes({"id": number}), key, partition)
                producer.produce(topic, b"bad%d" % number, key, partition)
            assert producer.flush(30) == 0

        fill(range(4), 0)
        job = job_maker(tmp_path, APPLICATION.format(topic=topic), properties)
        job.run_through([("commit.in-transaction", 1)], tmp_path / "died")
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        fill(range(4, 6), 1)
        done = job.run()
        assert done.returncode == 0, done.stderr + job.log()
    listed = [sys.executable, "-m", "grete.cli.main", "dead-letters", "list", "--job", topic, "-o", "json"]
    shown = subprocess.run(
        listed, env=job.environment(), capture_output=True, text=True, timeout=patient(60), check=True
    )
    assert len(shown.stdout.splitlines()) == 6
    rows = [
        (serdes.key.from_bytes(key), (value or b"")[:5])
        for key, value in committed(kafka.bootstrap, f"{topic}-out")
    ]
    assert sorted(rows) == [(number, b"\0\0\0\0\x01") for number in range(6)]
    letters = [json.loads(value or b"") for _, value in committed(kafka.bootstrap, f"{topic}-1-dead-letters")]
    assert sorted(base64.b64decode(one["value_base64"]) for one in letters) == [
        b"bad%d" % n for n in range(6)
    ]
    assert {one["ssp"] for one in letters} == {f"kafka.{topic}.0", f"kafka.{topic}.1"}
    assert {one["task"] for one in letters} == {"Partition 0", "Partition 1"}
