"""Brokers that go away while a pipeline has rows of a batch in an open transaction."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]

RECORDS, AWAY_S = 2_000, 5
APPLICATION = """
import grete

class Copied(grete.DataFramePipeline):
    output = "kafka.{topic}-out"

    def build(self, inputs):
        return inputs["kafka.{topic}"].select("key", "value")
"""
PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Copied
task.inputs=kafka.{topic}
task.outputs=kafka.{topic}-out
task.checkpoint.system=kafka
task.checkpoint.replication.factor=1
task.max.records.per.batch=200
cluster-manager.container.retry.count=-1
cluster-manager.container.retry.longest-pause.ms=100
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.default.stream.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
IN_THE_TRANSACTION = ",".join(f"batch.after-run:delay:{nth}" for nth in range(2, 8))
"""For a second each of these batches has its rows with the brokers, and is not committed."""


@pytest.mark.nightly
def test_brokers_that_go_away_in_the_middle_of_a_batch_cost_no_row_and_double_none(
    cluster: KafkaCluster, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    topic = f"outage-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for name in (topic, f"{topic}-out"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(RECORDS):
        producer.produce(topic, b"%d" % n, b"k")
    assert producer.flush(30) == 0
    names = {"topic": topic, "bootstrap": cluster.bootstrap}
    job = job_maker(tmp_path, APPLICATION.format(**names), PROPERTIES.format(**names))
    out = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    out.assign([TopicPartition(f"{topic}-out", 0, 0)])
    found: list[int] = []

    def reads(more: int) -> bool:
        for message in out.consume(1_000, 0.2):
            if message.error() is None:
                found.append(int(message.value() or b""))
        return len(found) >= more

    process = subprocess.Popen(
        job.command("run", "--until-drained", "--quiet"),
        env=job.environment(GRETE_FAILPOINT=IN_THE_TRANSACTION, GRETE_FAILPOINT_CONTAINER="0"),
    )
    try:
        eventually(lambda: reads(200), "the first batch is committed")
        time.sleep(0.5)  # the second one has sent its rows, and waits
        cluster.kill()
        time.sleep(AWAY_S)
        cluster.restart()
        assert process.wait(patient(200)) == 0, job.log()[-4_000:]
        eventually(lambda: reads(RECORDS), "every row is read")
        reads(RECORDS + 1)
    finally:
        process.kill()
        process.wait()
        out.close()
    assert sorted(found) == list(range(RECORDS))
