"""On Kafka a record's time is what an entry's age is judged by, and the changelog's topic deletes by that age."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.kafka.kafka_job import Job

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.standby import StandbyRun
from grete.errors import StreamError
from grete.grouping.standby import standby_task
from grete.kafka.topics import alter_topic_config
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.tasks.runtime import TaskWorkers
from grete.tasks.stores.rewind import Changelog
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

HOUR_MS = 3_600_000
TTL = "stores.counts.rocksdb.ttl.ms"


class Earlier(SystemClock):
    """The machine's clock, so many minutes ago."""

    def __init__(self, minutes: int) -> None:
        self._ago_ms = minutes * 60_000

    def wall_ms(self) -> int:
        return super().wall_ms() - self._ago_ms


class ExpiringJob(Job):
    """Counts keys, each until nothing of it has come for an hour. Every run is a new incarnation."""

    epoch = 0
    home_of_run = 0

    def count(self, keys: str, *, minutes_ago: int, elsewhere: bool = False) -> None:
        """Process these, as if it were then; `elsewhere` on a machine without the store's file."""
        for key in keys:
            self.send(key, partition=0)
        self.home_of_run += elsewhere
        self.home = self.home.parent / f"home-{self.home_of_run}"
        self.epoch += 1
        with closing(self.container(self.epoch)) as container:
            workers = TaskWorkers(container.epoch.spec, clock=Earlier(minutes_ago))
            container.run(workers)
            workers.close()

    def follow(self, *, minutes_ago: int) -> int:
        """Let a standby container of the machine catch up; up to which offset it has."""
        ssps = (SystemStreamPartition(self.name, self.input, 0),)
        task = AssignedTask(standby_task(TaskName("Partition 0"), 0), ssps, 0)
        assignment = Assignment(self.job, ContainerId("0-0"), 1, Settings.of(self.config), (task,))
        with closing(StandbyRun(assignment, self.home, Earlier(minutes_ago))) as run:
            [position] = run.catch_up().values()
        return position


@pytest.fixture
def job(kafka: KafkaCluster, tmp_path: Path) -> Iterator[ExpiringJob]:
    config = {TTL: str(HOUR_MS), "job.standbytasks.replication.factor": "2"}
    with closing(ExpiringJob(kafka.bootstrap, tmp_path / "home-0", partitions=1, config=config)) as made:
        yield made


def delete_before(kafka: KafkaCluster, job: Job, offset: int) -> None:
    """What the brokers' retention does, every five minutes."""
    admin, where = (
        AdminClient({"bootstrap.servers": kafka.bootstrap}),
        TopicPartition(job.changelog, 0, offset),
    )
    admin.delete_records([where])[where].result(30)


@pytest.mark.timeout(240)
def test_age_is_counted_from_the_records_times_wherever_the_store_is_rebuilt(
    kafka: KafkaCluster, job: ExpiringJob
) -> None:
    job.count("aab", minutes_ago=90)
    job.count("b", minutes_ago=50)
    assert job.counts() == {"a": [1, 2], "b": [1, 2]}
    job.count("ab", minutes_ago=30, elsewhere=True)
    assert job.counts() == {"a": [1, 2, 1], "b": [1, 2, 3]}, "a had expired half an hour ago"
    job.count("ab", minutes_ago=0)
    assert job.counts() == {"a": [1, 2, 1, 2], "b": [1, 2, 3, 4]}

    # brokers delete what is older, maybe they have, and a rewind does not miss it
    changelog = Changelog(job.system, job.changelog, 0, is_expiring=True)
    oldest = _offset_of(job, minutes_ago=40)
    delete_before(kafka, job, oldest)
    changelog.check_whole(oldest)
    assert changelog.back_to(oldest) == {b"a": None, b"b": None}
    job.count("a", minutes_ago=0, elsewhere=True)
    assert job.counts()["a"][-1] == 3

    # and when everything has gone, the last commit's mark is behind what is left
    end = int(job.system.offsets(job.changelog)[0].upcoming)
    delete_before(kafka, job, end)
    job.count("a", minutes_ago=0, elsewhere=True)
    assert job.counts()["a"][-1] == 1


def _offset_of(job: Job, *, minutes_ago: int) -> int:
    """The first offset of the changelog with a later record."""
    limit_ms = Earlier(minutes_ago).wall_ms()
    oldest = int(job.system.offsets(job.changelog)[0].oldest or 0)
    for _, batch in job.system.read(job.changelog, 0, oldest):
        for record in batch.to_pylist():
            if record["timestamp_ms"] > limit_ms:
                return int(record["offset"])
    raise AssertionError("there is no such record")


@pytest.mark.timeout(180)
def test_a_standby_copy_is_taken_over_with_its_times(job: ExpiringJob) -> None:
    job.count("ab", minutes_ago=50)
    assert job.follow(minutes_ago=50) > 0
    stores = [path for path in job.home.rglob("counts.db") if "standby" not in str(path)]
    job.count("b", minutes_ago=30)
    for path in stores:
        path.unlink()
    job.count("ab", minutes_ago=-15)
    assert job.counts() == {"a": [1, 1], "b": [1, 2, 3]}


def test_the_changelogs_topic_is_made_so_and_another_is_refused(
    kafka: KafkaCluster, job: ExpiringJob
) -> None:
    made = job.system._topics.config(job.changelog)
    assert {word.strip() for word in made["cleanup.policy"].split(",")} == {"compact", "delete"}
    assert (made["retention.ms"], made["segment.ms"]) == (str(HOUR_MS), str(HOUR_MS))
    spec = StreamSpec(job.changelog, 1, compacted=True)
    job.system.ensure_stream(spec)

    def refusal() -> str:
        try:
            job.system.ensure_stream(spec)
        except StreamError as error:
            return str(error)
        return ""

    for config, refused in (
        ({"retention.ms": "60000"}, r"lost before.*--add-config retention\.ms=3600000"),
        ({"cleanup.policy": "compact"}, r"for ever.*--add-config cleanup\.policy=\[compact,delete\]"),
    ):
        alter_topic_config(job._connection, job.changelog, config)
        # a broker goes on for a moment with what was before
        eventually(lambda refused=refused: re.search(refused, refusal()), refused, context=refusal)
