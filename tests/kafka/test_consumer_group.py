"""A job on Kafka shows its lag in a consumer group, as ordinary tools compute it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.consumer_group import group_lag, group_offsets, joined
from tests.support.kafka_tools import described_groups

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import Fenced, GreteError, StreamError
from grete.kafka.epoch_topic import EPOCHS
from grete.model.fence import Fence
from grete.model.ids import JobId, SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.base import Message, SystemContext
from grete.systems.kafka.system import KafkaSystem, open_kafka_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.fault
PARTITIONS = 4
KEY = "task.checkpoint.consumer.group"
APPLICATION = """
import time
from pathlib import Path
import grete

class Reading(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        while Path("HELD").exists():
            time.sleep(0.05)
"""


class Job:
    """Two containers, without Spark, that read a topic of their own and show themselves in a group."""

    def __init__(self, cluster: KafkaCluster, home: Path, *, is_shown: bool = True) -> None:
        self.bootstrap = cluster.bootstrap
        self.id = JobId(f"shown-{uuid.uuid4().hex[:8]}")
        self.topic = f"{self.id.name}-in"
        self.group = f"{self.id.name}-group" if is_shown else f"grete-{self.id}"
        self.home = home
        self.held = home / "held"
        (home / "reading.py").write_text(APPLICATION.replace("HELD", str(self.held)))
        self._config = home / "job.properties"
        self._config.write_text(f"""
job.name={self.id.name}
job.coordinator.system=local
job.application.path={home}
job.container.count=2
task.class=reading:Reading
task.inputs=kafka.{self.topic}
task.checkpoint.replication.factor=1
{f"{KEY}={self.group}" if is_shown else ""}
task.commit.groups=1
cluster-manager.container.retry.count=0
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.samza.msg.serde=json
systems.kafka.producer.bootstrap.servers={self.bootstrap}
""")
        with closing(self.system()) as system:
            system.create_stream(StreamSpec(self.topic, PARTITIONS))

    def system(self) -> KafkaSystem:
        config = {
            "systems.kafka.producer.bootstrap.servers": self.bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
        }
        return open_kafka_system(SystemContext(Settings.of(config), "kafka", Path(), SystemClock()))

    def fill(self, each: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(each * PARTITIONS):
            producer.produce(self.topic, b"{}", b"k", number % PARTITIONS)
        assert producer.flush(30) == 0

    def run(self) -> int:
        """Until it is drained or fails; returns its exit code."""
        command = [sys.executable, "-m", "grete.testing.sparkless", "--config", str(self._config)]
        environment = {**os.environ, "GRETE_HOME": str(self.home)}
        done = subprocess.run(
            [*command, "--until-drained"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
        return done.returncode

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until it is stopped."""
        command = [sys.executable, "-m", "grete.testing.sparkless", "--config", str(self._config)]
        process = subprocess.Popen(
            command, env={**os.environ, "GRETE_HOME": str(self.home)}, stderr=subprocess.DEVNULL
        )
        try:
            eventually(self.is_running, "the job runs", context=self.log)
            yield
            with open_job(self.id) as handle:
                handle.requests.stop(10, "the test is over")
            assert process.wait(patient(60)) == 0
        finally:
            process.terminate()
            process.wait(patient(60))

    def run_until_shown(self) -> None:
        """Until the group has no lag; then it is stopped. A job that drains has twelve seconds for its last word."""
        with self.running():
            eventually(lambda: self.lag() == everywhere(0), "the group follows", context=self.log)

    def is_running(self) -> bool:
        with suppress(GreteError), open_job(self.id) as handle:
            return len(handle.checkpoints.read()) == PARTITIONS
        return False

    def log(self) -> str:
        return "".join(log.read_text() for log in sorted(self.home.rglob("container-*.log")))

    def processed(self) -> dict[int, int]:
        """The last processed offset of each partition, as its checkpoint says."""
        with open_job(self.id) as handle:
            return {
                ssp.partition: int(offset)
                for commit in handle.checkpoints.read().values()
                for ssp, offset in commit.offsets.items()
            }

    def offsets(self) -> dict[int, int]:
        return {where[1]: offset for where, offset in group_offsets(self.bootstrap, self.group).items()}

    def lag(self) -> dict[int, int]:
        return {where[1]: lag for where, lag in group_lag(self.bootstrap, self.group).items()}


@pytest.fixture
def job(kafka: KafkaCluster, home: Path) -> Job:
    return Job(kafka, home)


def everywhere(lag: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), lag)


def test_the_lag_of_the_group_is_the_lag_of_the_job_and_follows_a_rewind(job: Job) -> None:
    """Each of two containers publishes its own partitions; none is left out."""
    job.fill(5)
    job.run_until_shown()
    assert job.offsets() == {partition: last + 1 for partition, last in job.processed().items()}
    job.fill(3)
    assert job.lag() == everywhere(3)

    job.held.touch()
    rewind = ["checkpoint", "rewind", "--job", job.id.name, "--to", "offset:2", "--execute"]
    assert main(rewind) == 0
    assert job.lag() == everywhere(3), "a startpoint counts when a container applies it"
    with job.running():
        eventually(lambda: job.lag() == everywhere(6), "they start there and process nothing yet")
        job.held.unlink()
        eventually(lambda: job.lag() == everywhere(0), "they have processed it again")
    assert "consumer group" not in job.log()


def test_kafkas_own_tool_shows_a_job_in_one_group_as_status_does(kafka: KafkaCluster, home: Path) -> None:
    """Without a word of the configuration; the other groups, which keep epochs, have no lag."""
    job = Job(kafka, home, is_shown=False)
    job.fill(5)
    job.run_until_shown()
    job.fill(3)
    with open_job(job.id) as handle:
        status = {str(ssp.partition): str(lag) for ssp, lag in handle.lag().by_ssp.items()}
    assert status == {str(partition): "3" for partition in range(PARTITIONS)}
    rows = [row for row in described_groups(job.bootstrap) if job.id.name in row.group]
    own = [row for row in rows if row.group == job.group]
    assert {row.topic for row in own} == {job.topic}
    assert {str(row.partition): row.lag for row in own} == status
    assert {row.partition: int(row.offset) for row in own} == {
        partition: last + 1 for partition, last in job.processed().items()
    }
    epochs = {(row.topic, row.offset, row.end, row.lag) for row in rows if row.group != job.group}
    assert epochs == {(EPOCHS, "0", "0", "0")}


def test_marks_of_transactions_are_no_lag(job: Job) -> None:
    """As for any consumer: behind the last record of another job's output there is the mark of its commit."""
    with closing(job.system()) as system:
        now_ms = SystemClock().wall_ms()
        system.append(job.topic, [Message(b"k", b"{}", now_ms, partition) for partition in range(PARTITIONS)])
    job.run_until_shown()
    assert job.offsets() == everywhere(2)


def test_a_member_of_the_group_keeps_it_and_costs_the_job_nothing(job: Job) -> None:
    job.fill(5)
    with closing(joined(job.bootstrap, job.group, job.topic)):
        assert job.run() == 0
        assert job.offsets() == {}
        assert job.processed() == everywhere(4)
        said = "a consumer is a member of this group; stop it, or let task.checkpoint.consumer.group name"
        assert job.log().count(said) == 2, "once in each container"
    job.run_until_shown()


def test_a_running_job_is_shown_as_soon_as_the_key_is_set(kafka: KafkaCluster, home: Path) -> None:
    """Its containers take it up between two batches, and are not started again."""
    job = Job(kafka, home, is_shown=False)
    job.fill(5)
    with job.running():
        job.group = f"{job.id.name}-group"
        assert job.offsets() == {}
        assert main(["config", "set", "--job", job.id.name, KEY, job.group, "--reason", "dashboards"]) == 0
        eventually(lambda: job.lag() == everywhere(0), "the group is there", context=job.log)
        job.fill(5)
        eventually(lambda: job.offsets() == everywhere(10), "the group follows", context=job.log)
        with open_job(job.id) as handle:
            assert "container-exited" not in {row.event for row in handle.history()}


def test_a_container_that_was_succeeded_moves_no_group(job: Job) -> None:
    ssp = SystemStreamPartition("kafka", job.topic, 0)
    older, newer = (Fence(f"container/{job.id}/0", epoch) for epoch in (1, 2))
    with closing(job.system()) as system:
        system.raise_fence([older])
        with closing(system.group_offsets(job.group, older)) as group:
            group.write({ssp: 0})
            system.raise_fence([newer])
            with pytest.raises(Fenced):
                group.write({ssp: 1})
        assert job.offsets() == {0: 0}


def test_a_partition_that_is_not_there_is_reported(job: Job) -> None:
    fence = Fence(f"container/{job.id}/0", 1)
    with closing(job.system()) as system:
        system.raise_fence([fence])
        with closing(system.group_offsets(job.group, fence)) as group:
            with pytest.raises(StreamError, match="Unknown topic or partition"):
                group.write({SystemStreamPartition("kafka", job.topic, PARTITIONS): 0})
            many = {
                SystemStreamPartition("kafka", job.topic, partition): 0 for partition in range(PARTITIONS)
            }
            group.write(many)
    assert job.offsets() == everywhere(0)
