"""Topics under a job that reads them: deleted and recreated, trimmed, joined by others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import StreamError
from grete.model.ids import JobId, SystemStreamPartition
from grete.operations import open_job
from grete.systems.base import SystemContext
from grete.systems.kafka.system import KafkaSystem, open_kafka_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = pytest.mark.fault
ECHO = """
import grete

class Echo(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("kafka.OUT", {"n": envelope.message["n"]}, key=envelope.key)
"""


class Topics:
    """Topics of one test on the shared broker."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.bootstrap = cluster.bootstrap
        self.mark = uuid.uuid4().hex[:8]
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._n = 0

    def named(self, name: str) -> str:
        return f"{name}-{self.mark}"

    def make(self, name: str, partitions: int = 1) -> None:
        topic = self.named(name)
        deadline_s = time.monotonic() + patient(30)
        while True:  # a topic of this name may be on its way out
            try:
                self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
            except KafkaException:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            else:
                return

    def remake(self, name: str) -> None:
        self._admin.delete_topics([self.named(name)])[self.named(name)].result(30)
        self.make(name)

    def trim(self, name: str, before: int) -> None:
        for done in self._admin.delete_records([TopicPartition(self.named(name), 0, before)]).values():
            done.result(30)

    def grow(self, name: str, partitions: int) -> None:
        new = NewPartitions(self.named(name), partitions)
        self._admin.create_partitions([new])[self.named(name)].result(30)

    def fill(self, name: str, count: int, timestamp_ms: int = 0, partition: int = 0) -> None:
        """Without a time it is now: brokers delete what is older than a week."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            self._n += 1
            value = json.dumps({"n": self._n})
            producer.produce(
                self.named(name), value, b"k", partition, timestamp=timestamp_ms or round(time.time() * 1000)
            )
        assert producer.flush(30) == 0


@pytest.fixture
def topics(kafka: KafkaCluster) -> Topics:
    return Topics(kafka)


@pytest.fixture
def system(topics: Topics) -> Iterator[KafkaSystem]:
    config = {"systems.kafka.producer.bootstrap.servers": topics.bootstrap}
    with closing(
        open_kafka_system(SystemContext(Settings.of(config), "kafka", Path(), SystemClock()))
    ) as opened:
        yield opened


class Echo:
    """A job that sends on what it reads, run until it is drained, without Spark."""

    def __init__(self, topics: Topics, home: Path, inputs: str) -> None:
        self._topics, self._home = topics, home
        self.job = JobId(f"echo-{topics.mark}")
        (home / "echo.py").write_text(ECHO.replace("OUT", topics.named("out")))
        self.config = home / "echo.properties"
        self.config.write_text(f"""
job.name={self.job.name}
job.coordinator.system=local
job.application.path={home}
task.class=echo:Echo
{inputs}
task.outputs=kafka.{topics.named("out")}
task.checkpoint.replication.factor=1
task.commit.groups=1
cluster-manager.container.retry.count=0
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.samza.msg.serde=json
systems.kafka.default.stream.replication.factor=1
systems.kafka.producer.bootstrap.servers={topics.bootstrap}
""")

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "grete.testing.sparkless",
                "--config",
                str(self.config),
                "--until-drained",
            ],
            env={**os.environ, "GRETE_HOME": str(self._home)},
            capture_output=True,
            text=True,
            timeout=patient(120),
        )

    def runs(self) -> None:
        done = self.run()
        assert done.returncode == 0, done.stderr[-5000:]

    def is_refused(self) -> str:
        done = self.run()
        assert done.returncode != 0
        return done.stderr

    def sent(self, system: KafkaSystem) -> list[int]:
        out = self._topics.named("out")
        batches = [batch for _, batch in system.read(out, 0, 0)]
        return [json.loads(value)["n"] for batch in batches for value in batch.column(1).to_pylist()]


def test_a_recreated_topic_stops_the_job_until_a_start_is_named(
    topics: Topics, home: Path, system: KafkaSystem
) -> None:
    """Although the new one has more records: going on in the middle of it would leave out what came before."""
    topics.make("in")
    topics.fill("in", 2)
    job = Echo(topics, home, f"task.inputs=kafka.{topics.named('in')}")
    job.runs()
    with open_job(job.job) as handle:
        assert handle.lag().total == 0
    topics.remake("in")
    topics.fill("in", 5)
    said = job.is_refused()
    assert "was deleted and recreated since this job read it" in said
    assert "--to oldest --execute" in said
    assert main(["checkpoint", "rewind", "--job", job.job.name, "--to", "oldest", "--execute"]) == 0
    job.runs()
    assert job.sent(system) == [1, 2, 3, 4, 5, 6, 7]


def test_a_recreated_topic_is_noticed_by_its_readers(topics: Topics, system: KafkaSystem) -> None:
    topics.make("in")
    topics.fill("in", 1)
    assert system.offsets(topics.named("in"))[0].upcoming == "1"
    topics.remake("in")
    topics.fill("in", 9)
    with pytest.raises(StreamError, match="was deleted and recreated"):
        system.offsets(topics.named("in"))


def overtaken(topics: Topics, home: Path, more: str = "") -> Echo:
    """It has processed two records; of the four that came then, retention has left the last."""
    topics.make("in")
    topics.fill("in", 2)
    job = Echo(topics, home, f"task.inputs=kafka.{topics.named('in')}\n{more}")
    job.runs()
    topics.fill("in", 4)
    topics.trim("in", 5)
    return job


def test_retention_that_passes_a_checkpoint_stops_the_job_with_what_is_lost(
    topics: Topics, home: Path, system: KafkaSystem
) -> None:
    job = overtaken(topics, home)
    said = job.is_refused()
    assert "the offsets from 2 to before 5 are gone" in said
    assert main(["checkpoint", "rewind", "--job", job.job.name, "--to", "oldest", "--execute"]) == 0
    job.runs()
    assert job.sent(system) == [1, 2, 6]


def test_a_job_that_skips_lost_offsets_goes_on_and_says_which(
    topics: Topics, home: Path, system: KafkaSystem
) -> None:
    job = overtaken(topics, home, "task.lost-offsets.policy=skip")
    job.runs()
    assert job.sent(system) == [1, 2, 6]
    with open_job(job.job) as handle:
        rows = [row.details for row in handle.history() if row.event == "offsets-skipped"]
    lost = f"task Partition 0 skips the offsets from 2 to before 5 of kafka.{topics.named('in')}.0"
    assert [row["skipped"] for row in rows] == [lost]


def test_a_job_starts_at_a_time(topics: Topics, home: Path, system: KafkaSystem) -> None:
    topics.make("in")
    an_hour_ago_ms = round(time.time()) * 1000 - 3_600_000
    topics.fill("in", 2, timestamp_ms=an_hour_ago_ms - 60_000)
    topics.fill("in", 2, timestamp_ms=an_hour_ago_ms + 60_000)
    ssp = SystemStreamPartition("kafka", topics.named("in"), 0)
    assert system.offset_at(ssp, an_hour_ago_ms) == "2"
    job = Echo(topics, home, f"task.inputs=kafka.{topics.named('in')}")
    job.runs()
    words = [
        "checkpoint",
        "rewind",
        "--job",
        job.job.name,
        "--to",
        f"timestamp:{an_hour_ago_ms}",
        "--execute",
    ]
    assert main(words) == 0
    job.runs()
    assert job.sent(system) == [1, 2, 3, 4, 3, 4]


def test_when_a_topic_grows_a_key_keeps_its_task_and_its_order(
    topics: Topics, home: Path, system: KafkaSystem
) -> None:
    """Two partitions are read side by side; not what is in the new one with what the key left in the old one."""
    topics.make("in")
    topics.fill("in", 1)
    stores = "stores.s.factory=grete.store.sqlite\nstores.s.changelog.replication.factor=1"
    inputs = f"task.inputs=kafka.{topics.named('in')}\ntask.max.records.per.batch=2\n{stores}"
    job = Echo(topics, home, inputs)
    job.runs()
    topics.fill("in", 3)
    topics.grow("in", 2)
    topics.fill("in", 3, partition=1)
    job.runs()
    assert job.sent(system) == [1, 2, 3, 4, 5, 6, 7]
    with open_job(job.job) as handle:
        assert sorted(handle.checkpoints.read()) == ["Partition 0"]


def test_topics_that_a_pattern_chooses_become_inputs_and_what_jobs_remember_does_not(
    topics: Topics, home: Path, system: KafkaSystem
) -> None:
    for name in ("one", "two"):
        topics.make(name)
        topics.fill(name, 1)
    rewriter = "job.config.rewriter.in"
    job = Echo(
        topics,
        home,
        f"job.config.rewriters=in\n{rewriter}.class=org.apache.samza.config.RegExTopicGenerator\n"
        f"{rewriter}.system=kafka\n{rewriter}.regex=.*{topics.mark}.*",
    )
    job.runs()
    topics.make("three")
    topics.fill("three", 1)
    job.runs()
    assert sorted(job.sent(system)) == [1, 2, 3]
    with open_job(job.job) as handle:
        inputs = sorted(f"kafka.{topics.named(name)}" for name in ("one", "three", "two"))
        assert handle.config()["task.inputs"].split(",") == inputs
