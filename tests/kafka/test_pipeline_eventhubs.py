"""Pipelines that read and write hubs, on a broker that is to Spark as Event Hubs are: SASL_SSL and no
transactions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.secure_kafka import SecureCluster

from grete.checkpoint.committed_reader import CommittedReader
from grete.checkpoint.names import checkpoint_log_name
from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.systems.eventhubs.hash import partition_of_key
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]
SECRET = "aGlkZGVuIGluIHNpZ2h0"  # noqa: S105 - the fixture's
APPLICATION = """
import grete
from pyspark.sql import functions as F

class Flights(grete.DataFramePipeline):
    def build(self, inputs):
        flights = inputs["hubs.flights"]
        if {is_decoded}:
            late = flights.select("key", "value.*").where("delay > 0")
        else:
            parsed = F.from_json(flights.value.cast("string"), "delay INT")
            late = flights.select("key", parsed.alias("value")).select("key", "value.*").where("delay > 0")
        everything = flights.select("key", F.col("offset").cast("string").alias("value"))
        return {{"hubs.late": late, "{beside}.{job}-all": everything}}
"""
OF_A_HUB = """
streams.{name}.samza.system=hubs
streams.{name}.eventhubs.namespace=flights
streams.{name}.eventhubs.entitypath={hub}
sensitive.streams.{name}.eventhubs.sas.keyname=all
sensitive.streams.{name}.eventhubs.sas.token=${{file:{key}}}
"""
PROPERTIES = """
job.name={job}
job.coordinator.system=local
job.application.path=.
app.class=counter:Flights
task.inputs=hubs.flights
task.outputs=hubs.late,{beside}.{job}-all
task.checkpoint.system={beside}
task.checkpoint.replication.factor=1
systems.hubs.samza.factory=eventhubs
systems.hubs.samza.offset.default=oldest
systems.hubs.samza.key.serde=string
systems.hubs.samza.msg.serde=flight
systems.hubs.default.stream.pipeline.columns={columns}
systems.hubs.consumer.bootstrap.servers={secure}
systems.hubs.consumer.ssl.truststore.type=PEM
systems.hubs.consumer.ssl.truststore.location={ca}
serializers.registry.flight.class=json
serializers.registry.flight.schema=delay INT
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.consumer.bootstrap.servers={bootstrap}
systems.kafka.default.stream.replication.factor=1
streams.all.samza.system={beside}
streams.all.samza.physical.name={job}-all
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.eventLog.enabled=true
spark.eventLog.dir={events}
spark.eventLog.compress=false
spark.log.level=INFO
"""


class HubPipeline:
    """A pipeline on hubs of its own, and the broker behind them through the listener without password."""

    def __init__(
        self, secure: SecureCluster, directory: Path, make: Callable[..., Any], beside: str, columns: str
    ) -> None:
        self.job = JobId(f"hubpipe-{uuid.uuid4().hex[:8]}")
        self.bootstrap, self.directory = secure.bootstrap, directory
        self.hubs = {name: f"{self.job.name}-{name}" for name in ("flights", "late")}
        self.admin = AdminClient({"bootstrap.servers": secure.bootstrap})
        for made in self.admin.create_topics([NewTopic(hub, 2, 1) for hub in self.hubs.values()]).values():
            made.result(30)
        (directory / "events").mkdir()
        (directory / "key").write_text(SECRET)
        properties = PROPERTIES.format(
            job=self.job.name,
            beside=beside,
            columns=columns,
            secure=secure.secure_bootstrap,
            bootstrap=secure.bootstrap,
            ca=secure.login.authority.ca_pem,
            events=directory / "events",
        )
        for name, hub in self.hubs.items():
            properties += OF_A_HUB.format(name=name, hub=hub, key=directory / "key")
        text = APPLICATION.format(job=self.job.name, beside=beside, is_decoded=columns == "decoded")
        self.process = make(directory, text, properties)

    def fill(self, *delays: int, partition: int | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number, delay in enumerate(delays):
            where = number % 2 if partition is None else partition
            producer.produce(self.hubs["flights"], json.dumps({"delay": delay}), f"k{delay}", where)
        assert producer.flush(30) == 0

    def grow(self, partitions: int) -> None:
        hub = self.hubs["flights"]
        self.admin.create_partitions([NewPartitions(hub, partitions)])[hub].result(30)

    def late(
        self, poll_of: Callable[[Consumer], Callable[[float], Any]] = lambda c: c.poll
    ) -> list[tuple[str, int, int]]:
        """Key, partition and delay of what the output's hub has, in order of the delays."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex})
        partitions = [TopicPartition(self.hubs["late"], p, 0) for p in range(2)]
        consumer.assign(partitions)
        ends = [consumer.get_watermark_offsets(where, timeout=patient(30))[1] for where in partitions]
        poll, found = poll_of(consumer), []

        def is_at_the_end() -> bool:
            while (message := poll(1.0)) is not None:
                assert message.error() is None
                found.append(
                    (message.key().decode(), message.partition(), json.loads(message.value())["delay"])
                )
            return all(at.offset >= end for at, end in zip(consumer.position(partitions), ends, strict=True))

        eventually(is_at_the_end, "reading the output")
        consumer.close()
        return sorted(found, key=lambda one: one[2])

    def run(self) -> None:
        done = self.process.run()
        assert done.returncode == 0, done.stderr + self.process.log()

    def grete(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "grete.cli.main", *words, "--job", self.job.name],
            env=self.process.environment(),
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
        assert done.returncode == 0, done.stderr

    def told_secrets(self) -> list[Path]:
        """The files of the job, Spark's event log and checkpoint among them, that have the key of the hub."""
        files = [path for path in self.directory.rglob("*") if path.is_file() and path.name != "key"]
        assert any("events" in str(path) for path in files)
        return [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def start(
    secure_kafka: SecureCluster, tmp_path: Path, job_maker: Callable[..., Any]
) -> Callable[[str, str], HubPipeline]:
    return lambda beside, columns: HubPipeline(secure_kafka, tmp_path, job_maker, beside, columns)


def expected(*delays: int) -> list[tuple[str, int, int]]:
    return [(f"k{delay}", partition_of_key(b"k%d" % delay, 2), delay) for delay in sorted(delays)]


@pytest.mark.nightly  # 26 s; `fault/test_eventhubs_job.py` has StreamTasks on hubs
def test_a_pipeline_reads_and_writes_hubs_as_they_grow_and_are_rewound_and_no_secret_is_told(
    start: Callable[[str, str], HubPipeline],
) -> None:
    pipeline = start("kafka", "decoded")
    pipeline.fill(1, -1, 2, 0)
    pipeline.run()
    assert pipeline.late() == expected(1, 2)
    pipeline.grow(3)
    pipeline.fill(5, -5, partition=2)
    pipeline.grete(
        "checkpoint", "rewind", "--ssp", "hubs.flights.0", "--to", "oldest", "--state", "discard", "--execute"
    )
    pipeline.run()
    assert pipeline.late() == expected(1, 1, 2, 2, 5), "both positive delays were in partition 0"
    everything = {"bootstrap.servers": pipeline.bootstrap, "isolation.level": "read_committed"}
    assert len(committed_rows(everything, f"{pipeline.job.name}-all")) == 4 + 2 + 2
    assert pipeline.told_secrets() == []


@pytest.mark.nightly  # test_pipeline_kills.py kills outputs beside transactions
def test_killed_after_rows_were_sent_they_are_on_the_hub_again_and_once_beside_it_and_for_a_committed_reader(
    start: Callable[[str, str], HubPipeline], tmp_path: Path
) -> None:
    pipeline = start("local", "raw")
    pipeline.fill(1, -1, 2, 0)
    pipeline.process.run_through([("batch.after-run", 1)], tmp_path / "died")
    assert "continuing lineage" in pipeline.process.log()
    assert pipeline.late() == expected(1, 1, 2, 2)
    with closing(LocalSystem(pipeline.process.home / "local", SystemClock())) as local:
        log = local.checkpoint_log(checkpoint_log_name(pipeline.job))
        committed = pipeline.late(lambda consumer: CommittedReader(consumer, {pipeline.job: log}).poll)
        assert committed == expected(1, 2)
        all_of_it = [batch for p in range(2) for batch in local.read(f"{pipeline.job.name}-all", p, 0)]
        assert sum(batch.num_rows for _, batch in all_of_it) == 4
    assert pipeline.told_secrets() == []


def committed_rows(settings: dict[str, str], topic: str) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": uuid.uuid4().hex, "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, patient(30)).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(patient(30))
        assert message is not None
        if message.error() is None:
            found.append(message.value() or b"")
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended += 1
    consumer.close()
    return found
