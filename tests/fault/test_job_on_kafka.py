"""A whole stateful job on Kafka, its brokers killed and cut off: every record counted once, nobody has to help.

Coordinator stream, election, inputs, outputs, changelog and checkpoints are topics. Everything is real but Spark, so
that a restart costs seconds; what Spark adds is in `tests/kafka`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.assembly import open_job
from grete.clock import SystemClock
from grete.errors import GreteError, StreamUnreachable
from grete.model.ids import JobId
from grete.systems.base import Message, StreamSpec, System
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, reaches

pytestmark = pytest.mark.fault

COUNTING = """
import grete

class Counting(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("kafka.NAME-out", {"count": count}, key=envelope.key)
"""
KEYS = 20


class Job:
    """The job, its topics and the processes of its coordinators."""

    def __init__(self, directory: Path, cluster: KafkaCluster, *, copies: int) -> None:
        self.id = JobId(f"counting-{uuid.uuid4().hex[:8]}")
        self._directory = directory
        self._sent = self._last = 0
        self._processes: list[subprocess.Popen[str]] = []
        (directory / "counting.py").write_text(COUNTING.replace("NAME", self.id.name))
        self._settings = {
            "job.name": self.id.name,
            "job.application.path": str(directory),
            "job.coordinator.lease.ttl.ms": "3000",
            "job.coordinator.replication.factor": str(copies),
            "stores.counts.factory": "grete.store.sqlite",
            "stores.counts.changelog.replication.factor": str(copies),
            "systems.kafka.consumer.bootstrap.servers": cluster.bootstrap,
            "systems.kafka.default.stream.replication.factor": str(copies),
            "systems.kafka.producer.bootstrap.servers": cluster.bootstrap,
            "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
            "systems.kafka.samza.key.serde": "string",
            "systems.kafka.samza.msg.serde": "json",
            "systems.kafka.samza.offset.default": "oldest",
            "task.checkpoint.replication.factor": str(copies),
            "task.class": "counting:Counting",
            "task.inputs": f"kafka.{self.id.name}-in",
            "task.max.records.per.batch": "40",
            "task.outputs": f"kafka.{self.id.name}-out",
        }
        with self._system() as system:
            system.create_stream(StreamSpec(f"{self.id.name}-in", 2))
            system.create_stream(StreamSpec(f"{self.id.name}-out", 1))

    @contextlib.contextmanager
    def _system(self) -> Iterator[System]:
        with closing(open_system(self._settings, "kafka", Path(), SystemClock())) as system:
            yield system

    def submit(self) -> subprocess.Popen[str]:
        path = self._directory / "counting.properties"
        path.write_text("\n".join(f"{key}={value}" for key, value in self._settings.items()))
        with (self._directory / "coordinator.log").open("a") as log:
            command = [sys.executable, "-m", "grete.testing.sparkless", "--config", str(path)]
            process = subprocess.Popen(command, stderr=log, text=True)
        self._processes.append(process)
        return process

    def send(self, count: int) -> None:
        now_ms = (
            SystemClock().wall_ms()
        )  # what is stamped 1970 is older than its topic's retention, and goes at once
        messages = [
            Message(b"k%d" % ((self._sent + i) % KEYS), b"{}", now_ms, (self._sent + i) % KEYS % 2)
            for i in range(count)
        ]
        with self._system() as system:
            system.append(f"{self.id.name}-in", messages)
        self._sent += count

    def _counted(self) -> list[tuple[bytes, int]]:
        with self._system() as system:
            rows = [
                pair
                for _, batch in system.read(f"{self.id.name}-out", 0, 0)
                for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            ]
        return [(key, json.loads(value)["count"]) for key, value in rows]

    def await_counted(self) -> None:
        reaches(self._count, self._sent, "records counted", tell=self._tell)

    def _count(self) -> int:
        with contextlib.suppress(StreamUnreachable):  # our own look falls into the outage
            self._last = len(self._counted())
        return self._last

    def assert_each_counted_once(self) -> None:
        """Counts of a key rise by one with each of its records, so a lost or repeated one shows in some count."""
        counted = self._counted()
        of_key = Tally(key for key, _ in counted)
        assert sorted(counted) == sorted((key, n + 1) for key, times in of_key.items() for n in range(times))
        assert len(counted) == self._sent

    def epoch(self) -> int:
        with open_job(self.id) as handle:
            state = handle.state()
        return 0 if state is None else state.epoch

    def events(self) -> list[str]:
        with open_job(self.id) as handle:
            return [row.event for row in handle.history()]

    def _tell(self) -> str:
        logs = [self._directory / "coordinator.log", *self._directory.rglob("container*.log*")]
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs if log.is_file())

    def stop(self) -> None:
        with open_job(self.id) as handle:
            handle.request_stop(10, "the test is over")
        assert [process.wait(60) for process in self._processes] == [0] * len(self._processes)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        with contextlib.suppress(GreteError), open_job(self.id) as handle:
            for record in handle.launches().values():
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(record.handle.split("/")[1]), signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker of the test's own, since it is killed."""
    own = KafkaCluster(tmp_path / "kafka")
    own.start()
    yield own
    own.stop()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[KafkaCluster]:
    own = KafkaCluster(tmp_path / "kafka", nodes=3)
    own.start()
    yield own
    own.stop()


def made(directory: Path, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, copies: int) -> Job:
    directory.mkdir()
    monkeypatch.setenv("GRETE_HOME", str(directory / "home"))
    return Job(directory, cluster, copies=copies)


def test_a_broker_that_is_killed_in_the_middle_and_comes_back_costs_no_record(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First for a moment, then for longer than the lease: coordinator and containers go on by themselves."""
    job = made(tmp_path / "job", cluster, monkeypatch, 1)
    try:
        process = job.submit()
        job.send(200)
        job.await_counted()
        job.send(2_000)
        cluster.kill()
        cluster.restart()
        job.await_counted()
        before = job.epoch()
        job.send(2_000)
        cluster.kill()
        time.sleep(8)  # the lease is 3 s
        cluster.restart()
        job.await_counted()
        eventually(lambda: job.epoch() > before, "another incarnation leads")
        job.send(200)
        job.await_counted()
        assert process.poll() is None
        job.stop()
        job.assert_each_counted_once()
    finally:
        job.kill()


def test_one_of_three_brokers_dies_and_the_job_goes_on(
    three: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three copies, two in step: nothing waits for the one that is gone, and nothing is lost when it comes back."""
    job = made(tmp_path / "job", three, monkeypatch, 3)
    try:
        job.submit()
        job.send(200)
        job.await_counted()
        job.send(2_000)
        three.kill(2)
        job.await_counted()
        job.send(400)
        job.await_counted()
        three.restart(2)
        job.send(200)
        job.await_counted()
        job.stop()
        job.assert_each_counted_once()
    finally:
        job.kill()
