"""DataFrame pipelines on Kafka: killed where it hurts, let in by SASL_SSL, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.kafka_tools import described_groups
from tests.support.secure_kafka import SecureCluster

from grete.checkpoint.committed_reader import CommittedReader
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.output_commits import OutputCommits, WriterAttempt
from grete.checkpoint.task_commit import read_commits
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.kafka.epoch_topic import EPOCHS
from grete.keyed_log.kafka import open_checkpoint_log
from grete.model.ids import JobId, SystemStreamPartition
from grete.testing.waiting import eventually, patient

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(3_600 if NIGHTLY else 300)]
KEYS, RECORDS = 50, 3_000
STEPS = [
    "batch.before-run",
    "batch.after-run",
    "commit.before",
    "commit.in-transaction",
    "commit.after-transaction",
    "commit.after",
    "batch.after-commit",
]
"""Where a container may die from a batch's first row to the next batch."""
APPLICATION = '''
import grete

class Counting(grete.DataFramePipeline):
    """Counts each key in Spark's state; every batch sends the counts that changed."""

    output = "kafka.{topic}-out"
    output_mode = "update"

    def build(self, inputs):
        [frame] = inputs.values()
        return frame.groupBy(frame["key"].cast("string").alias("key")).count()
'''
PROPERTIES = """
job.name={topic}
job.application.path=.
app.class=counter:Counting
task.inputs=kafka.{topic}
task.outputs=kafka.{topic}-out
task.max.records.per.batch=1000
task.checkpoint.replication.factor=1
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.default.stream.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
systems.kafka.consumer.security.protocol=SASL_SSL
systems.kafka.consumer.sasl.mechanism=PLAIN
systems.kafka.consumer.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="ann" password="${{env:GRETE_ANNS_PASSWORD}}";
systems.kafka.consumer.ssl.truststore.type=PEM
systems.kafka.consumer.ssl.truststore.location={ca}
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.eventLog.enabled=true
spark.eventLog.dir={events}
spark.eventLog.compress=false
spark.log.level=INFO
"""


class Topics:
    """The job's topics, through the listener without password."""

    def __init__(self, bootstrap: str) -> None:
        self.name = f"pipe-{uuid.uuid4().hex[:8]}"
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(self.name, 2, 1)])[self.name].result(30)

    def fill(self, records: int, partitions: int = 2) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for i in range(records):
            producer.produce(self.name, b"{}", b"key%d" % (i % KEYS), i % partitions)
        assert producer.flush(30) == 0

    def ends(self) -> dict[int, int]:
        consumer = self.consumer()
        return {p: consumer.get_watermark_offsets(TopicPartition(self.name, p), 30)[1] for p in range(2)}

    def consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex})

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(30)

    def delete_before(self, offset: int) -> None:
        where = TopicPartition(self.name, 0, offset)
        self.admin.delete_records([where])[where].result(30)

    def read_committed(self) -> list[Message]:
        """What a reader that knows nothing of grete gets, from the output's beginning to its end."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
        }
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(f"{self.name}-out", p, 0) for p in range(2)])
        found, ended = [], 0
        while ended < 2:
            message = consumer.poll(patient(30))
            assert message is not None
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended += 1
        consumer.close()
        return found

    def read(self, poll_of: Callable[[Consumer], Callable[[float], Message | None]]) -> list[Message]:
        """Everything from the output's beginning to its end."""
        consumer = self.consumer()
        partitions = [TopicPartition(f"{self.name}-out", p, 0) for p in range(2)]
        consumer.assign(partitions)
        ends = [consumer.get_watermark_offsets(where, timeout=patient(30))[1] for where in partitions]
        poll, found = poll_of(consumer), []

        def is_at_the_end() -> bool:
            while (message := poll(1.0)) is not None:
                assert message.error() is None
                found.append(message)
            return all(at.offset >= end for at, end in zip(consumer.position(partitions), ends, strict=True))

        eventually(is_at_the_end, "reading the output")
        consumer.close()
        return found


def counts(messages: list[Message]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for message in messages:
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert value is not None
        found.setdefault(key.decode(), []).append(json.loads(value)["count"])
    return found


@pytest.fixture
def topics(secure_kafka: SecureCluster) -> Topics:
    return Topics(secure_kafka.bootstrap)


@pytest.fixture
def password(secure_kafka: SecureCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GRETE_ANNS_PASSWORD", secure_kafka.login.users["ann"])
    return secure_kafka.login.users["ann"]


@pytest.fixture
def job(
    secure_kafka: SecureCluster, topics: Topics, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> Any:
    (tmp_path / "events").mkdir()
    properties = PROPERTIES.format(
        topic=topics.name,
        bootstrap=secure_kafka.secure_bootstrap,
        ca=secure_kafka.login.authority.ca_pem,
        events=tmp_path / "events",
    )
    return job_maker(tmp_path, APPLICATION.format(topic=topics.name), properties)


@pytest.fixture
def log(secure_kafka: SecureCluster, topics: Topics) -> Iterator[Any]:
    config = {
        "systems.kafka.consumer.bootstrap.servers": secure_kafka.bootstrap,
        "task.checkpoint.replication.factor": "1",
    }
    name = checkpoint_log_name(JobId(topics.name))
    with closing(open_checkpoint_log(Settings.of(config), "kafka", name, SystemClock())) as opened:
        yield opened


@pytest.mark.nightly  # the step is one of those below
def test_killed_between_sink_and_checkpoint_rows_are_twice_in_the_topic_and_once_for_a_committed_reader(
    job: Any, topics: Topics, log: Any, password: str, tmp_path: Path
) -> None:
    configure(job, "systems.kafka.pipeline.delivery=stamps")
    topics.fill(RECORDS)
    kills = [("batch.after-run", 2), ("commit.after-transaction", 1)]
    job.run_through(kills, tmp_path / "died")

    everything = topics.read(lambda consumer: consumer.poll)
    committed = topics.read(lambda consumer: CommittedReader(consumer, {JobId(topics.name): log}).poll)
    assert len(everything) > len(committed)
    found = counts(committed)
    assert set(found) == {f"key{key}" for key in range(KEYS)}
    assert all(sent == sorted(set(sent)) and sent[-1] == RECORDS // KEYS for sent in found.values())
    assert len(committed) == 3 * KEYS  # each key once a batch
    check_what_was_committed(topics, log)
    check_groups(topics)
    assert "continuing lineage" in job.log()

    check_that_nobody_saw_the_password(tmp_path, password)

    # What retention takes away behind the job's back is reported with its offsets.
    topics.fill(100)
    topics.delete_before(topics.ends()[0] - 10)
    stopped = job.run()
    assert stopped.returncode != 0
    start, end = RECORDS // 2, RECORDS // 2 + 40
    assert f"the offsets from {start} to before {end} are gone" in stopped.stderr


@pytest.mark.nightly  # in `make test` the topic of test_pipeline_eventhubs.py grows
def test_a_counting_pipeline_follows_its_topic_when_it_grows(
    job: Any, topics: Topics, log: Any, password: str
) -> None:
    topics.fill(KEYS)
    assert job.run().returncode == 0
    topics.grow(4)
    topics.fill(KEYS, partitions=4)
    again = job.run()
    assert again.returncode == 0, again.stderr + job.log()
    assert "continuing lineage" in job.log()
    committed = topics.read(lambda consumer: CommittedReader(consumer, {JobId(topics.name): log}).poll)
    assert counts(committed) == {f"key{key}": [1, 2] for key in range(KEYS)}


def configure(job: Any, line: str) -> None:
    with job.config.open("a") as config:
        config.write(f"{line}\n")


@pytest.mark.parametrize("master", ["local[2]", pytest.param("local[2,3]", marks=pytest.mark.nightly)])
def test_killed_at_any_step_of_a_batch_a_reader_of_what_is_committed_gets_each_row_once(
    job: Any, topics: Topics, log: Any, password: str, tmp_path: Path, master: str
) -> None:
    """Tasks send the rows, or the driver, where tasks may be tried again."""
    configure(job, f"spark.master={master}")
    configure(job, "cluster-manager.container.retry.count=-1")
    records = RECORDS * 6 if NIGHTLY else RECORDS  # the kills take 17 batches of a thousand
    topics.fill(records)
    kills = [("batch.after-run", 2), ("commit.in-transaction", 1)]
    if NIGHTLY:
        kills += [(step, nth) for nth in (1, 2) for step in STEPS]
    job.run_through(kills, tmp_path / "died")
    found = topics.read_committed()
    assert all(message.headers() is None for message in found)
    sent = counts(found)
    assert set(sent) == {f"key{key}" for key in range(KEYS)}
    assert all(each == sorted(set(each)) and each[-1] == records // KEYS for each in sent.values())
    assert len(found) == records // 1_000 * KEYS  # each key once a batch
    check_checkpoints(topics, log)
    check_that_nobody_saw_the_password(tmp_path, password)


def check_what_was_committed(topics: Topics, log: Any) -> None:
    """The last processed offsets, and by whom."""
    lineage, known = check_checkpoints(topics, log)
    assert known.lineages[lineage].last == 2
    assert [batch for batch, _ in known.lineages[lineage].attempts] == [
        0,
        1,
        2,
    ]  # a container each: two were killed


def check_checkpoints(topics: Topics, log: Any) -> tuple[str, OutputCommits]:
    """The last processed offsets are in it; returns their lineage, and whose rows count."""
    records = list(log.read())
    offsets, lineages = {}, set()
    for commit in read_commits(records).values():
        offsets.update(commit.offsets)
        lineages.add(commit.lineage)
        assert WriterAttempt.parse(commit.token).job == f"{topics.name}-1"
    ends = topics.ends()
    assert offsets == {
        SystemStreamPartition("kafka", topics.name, p): str(end - 1) for p, end in ends.items()
    }
    known = OutputCommits()
    known.read(records)
    (lineage,) = lineages
    return lineage, known


def check_groups(topics: Topics) -> None:
    """Kafka's own tool shows what is committed, in one group; those of epochs have no lag, and Spark leaves none."""
    rows = described_groups(topics.bootstrap)
    own = [row for row in rows if row.topic == topics.name]
    assert {row.group for row in own} == {f"grete-{topics.name}-1"}
    assert {row.partition: (int(row.offset), row.lag) for row in own} == {
        partition: (end, "0") for partition, end in topics.ends().items()
    }
    others = {(row.topic, row.lag) for row in rows if topics.name in row.group and row not in own}
    assert others == {(EPOCHS, "0")}
    assert [row.group for row in rows if row.group.startswith(("spark-", "grete-reader"))] == []


def check_that_nobody_saw_the_password(directory: Path, password: str) -> None:
    """Neither Spark's event log, which its pages are made of, nor its checkpoint, nor any log or state of ours."""
    events = "".join(path.read_text() for path in (directory / "events").rglob("*") if path.is_file())
    assert "SparkListenerJobEnd" in events, "the batches are in there"
    secret = re.compile(re.escape(password.split(";")[0]).encode())
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert any("offsets" in path.parts for path in files)
    assert [path for path in files if secret.search(path.read_bytes())] == []
