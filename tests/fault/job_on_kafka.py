"""A whole job on Kafka without Spark, for tests of what befalls it: everything it keeps and writes is topics.

Coordinator stream, election, inputs, outputs, changelog and checkpoints are topics. Everything is real but Spark, so
that a restart costs seconds; what Spark adds is in `tests/kafka`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import GreteError, JobError
from grete.metadata.history import HistoryEvent
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import Context, eventually, patient, reaches

COUNTING = """
import grete

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("kafka.NAME-out", {"count": count, **envelope.message}, key=envelope.key)
"""
COPYING = """
import grete

class Application(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("kafka.NAME-out", envelope.message, key=envelope.key)
"""
KEYS = 20
PATIENT = {"job.coordinator.lease.ttl.ms": "10000"}
"""For a busy machine: with the 3 s of other tests the first election of three nodes has 3 s in which to be done, and
an attempt on YARN lost its lease while its executors began."""


@contextlib.contextmanager
def job_on(
    cluster: KafkaCluster, directory: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Iterator[Job]:
    """A `Job` with a GRETE_HOME of its own, of which nothing runs afterwards."""
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv("GRETE_HOME", str(directory / "home"))
    job = Job(directory, cluster, **more)
    try:
        yield job
    finally:
        job.kill()
        job.seen.close()


@dataclass(frozen=True, slots=True)
class Output:
    """One record that the job wrote."""

    key: bytes
    value: Mapping[str, int]


def place(cluster: KafkaCluster, topic: str, placed: Sequence[Sequence[int]]) -> None:
    """Make a topic whose partitions are on these nodes, and can be written as long as one of them is there."""
    new = NewTopic(
        topic,
        len(placed),
        replica_assignment=[list(nodes) for nodes in placed],
        config={"min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[topic].result(30)


class Job:
    """The job, its topics and the processes of its coordinators. It counts each key by default.

    NAME is the job's in the text of its application and in its settings.

    Record `n` has the key `n % KEYS`, which lives in the partition of that number modulo the partitions there are.
    """

    def __init__(
        self,
        directory: Path,
        cluster: KafkaCluster,
        *,
        copies: int = 1,
        partitions: int = 2,
        application: str = COUNTING,
        brokers: str | None = None,
        placed: Sequence[Sequence[int]] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`brokers` are those in the job's configuration, when it is not to reach them directly.

        `placed` are the nodes that hold each partition of the input, when brokers are not to decide.
        """
        self.id = JobId(f"counting-{uuid.uuid4().hex[:8]}")
        self.partitions = partitions
        self._directory = directory
        self._sent = self._number = self._count = 0
        self._processes: list[subprocess.Popen[str]] = []
        (directory / "application.py").write_text(application.replace("NAME", self.id.name))
        stores = {
            "stores.counts.factory": "grete.store.sqlite",
            "stores.counts.changelog.replication.factor": str(copies),
        }
        self._direct = {
            "job.name": self.id.name,
            "systems.kafka.consumer.bootstrap.servers": cluster.bootstrap,
            "systems.kafka.default.stream.replication.factor": str(copies),
            "systems.kafka.producer.bootstrap.servers": cluster.bootstrap,
            "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        }
        self._settings = {
            **self._direct,
            "job.application.path": str(directory),
            "cluster-manager.container.retry.longest-pause.ms": "1000",
            "job.coordinator.lease.ttl.ms": "3000",
            "job.coordinator.replication.factor": str(copies),
            **(stores if application == COUNTING else {}),
            "systems.kafka.consumer.bootstrap.servers": brokers or cluster.bootstrap,
            "systems.kafka.producer.bootstrap.servers": brokers or cluster.bootstrap,
            "systems.kafka.samza.key.serde": "string",
            "systems.kafka.samza.msg.serde": "json",
            "systems.kafka.samza.offset.default": "oldest",
            "task.checkpoint.replication.factor": str(copies),
            "task.class": "application:Application",
            "task.inputs": f"kafka.{self.input}",
            "task.max.records.per.batch": "40",
            "task.outputs": f"kafka.{self.output}",
            **{key: value.replace("NAME", self.id.name) for key, value in (settings or {}).items()},
        }
        if placed is not None:
            place(cluster, self.input, placed)
        with self._system() as system:
            system.create_stream(StreamSpec(self.input, self.partitions))
            system.create_stream(StreamSpec(self.output, 1))
        reader = {"group.id": self.id.name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self.seen = Consumer({"bootstrap.servers": cluster.bootstrap, **reader})
        self.seen.assign([TopicPartition(self.output, 0, 0)])

    @property
    def settings(self) -> Mapping[str, str]:
        """Its configuration, as it is submitted."""
        return self._settings

    @property
    def input(self) -> str:
        """The topic that it reads."""
        return f"{self.id.name}-in"

    @property
    def output(self) -> str:
        """The topic that it writes, of one partition."""
        return f"{self.id.name}-out"

    @contextlib.contextmanager
    def _system(self) -> Iterator[System]:
        with closing(open_system(Settings.of(self._direct), "kafka", Path(), SystemClock())) as system:
            yield system

    # --- processes ---

    def submit(self) -> subprocess.Popen[str]:
        """Start a coordinator with the job's configuration."""
        path = self._directory / "job.properties"
        path.write_text("\n".join(f"{key}={value}" for key, value in self._settings.items()))
        return self._coordinate("--config", str(path))

    def run_again(self) -> subprocess.Popen[str]:
        """Start a coordinator by the job's name alone."""
        return self._coordinate("--job", self.id.name)

    def _coordinate(self, *which: str) -> subprocess.Popen[str]:
        with (self._directory / "coordinator.log").open("a") as log:
            command = [sys.executable, "-m", "grete.testing.sparkless", *which]
            process = subprocess.Popen(command, stderr=log, text=True)
        self._processes.append(process)
        return process

    def stop(self) -> None:
        """Let the job end; its coordinators have nothing to complain of."""
        eventually(self._is_asked_to_stop, "a leader that can be stopped", context=self.log_ends)
        assert [process.wait(patient(60)) for process in self._processes] == [0] * len(self._processes), (
            self.log_ends()
        )

    def _is_asked_to_stop(self) -> bool:
        """Not while one incarnation has ended and the next has not begun."""
        with open_job(self.id) as handle, contextlib.suppress(JobError):
            handle.requests.stop(10, "the test is over")
            return True
        return False

    def coordinator_pids(self) -> list[int]:
        """Of all that were started and not killed."""
        return [process.pid for process in self._processes]

    def container_pids(self) -> list[int]:
        """Of the containers as they were launched last."""
        with open_job(self.id) as handle:
            return [int(one.handle.split("/")[1]) for one in handle.launches().values() if one.handle]

    def kill(self) -> None:
        """Kill all its processes; exit codes do not matter."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()
        with contextlib.suppress(GreteError):
            for pid in self.container_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def lose_stores(self) -> None:
        """Delete the files of its stores; their changelogs have all of it."""
        with open_job(self.id) as handle:
            shutil.rmtree(handle.state_directory / "stores")

    # --- records ---

    def send(self, count: int, only: int | None = None) -> None:
        """Append the next records, or those of them that belong into one partition.

        Without a transaction: brokers that are killed right after one may forget to end it, and readers stand still.
        """
        servers = self._direct["systems.kafka.producer.bootstrap.servers"]
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        sent = 0
        while sent < count:
            key = self._number % KEYS
            if only in (None, key % self.partitions):
                value = json.dumps({"n": self._number})
                producer.produce(self.input, value, b"k%d" % key, key % self.partitions)
                sent += 1
            self._number += 1
        assert producer.flush(60) == 0
        self._sent += count

    def ask(self, topic: str) -> None:
        """Append one record for each key to another topic, as `send` does."""
        producer = Producer({"bootstrap.servers": self._direct["systems.kafka.producer.bootstrap.servers"]})
        for key in range(KEYS):
            producer.produce(topic, b"{}", b"k%d" % key, key % self.partitions)
        assert producer.flush(60) == 0

    def trim(self, partition: int, before: int) -> None:
        """Let the brokers remove the records of the input before an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self._direct["systems.kafka.producer.bootstrap.servers"]})
        where = TopicPartition(self.input, partition, before)
        admin.delete_records([where])[where].result(30)

    def grow(self, partitions: int) -> None:
        """Give the input more partitions; what is sent from now on goes into all of them."""
        with self._system() as system:
            system.add_partitions(self.input, partitions)
        self.partitions = partitions

    def written(self) -> list[Output]:
        """Records that the job has written and committed, in order."""
        with self._system() as system:
            return [
                Output(key, json.loads(value))
                for _, batch in system.read(self.output, 0, 0)
                for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            ]

    def await_counted(self, context: Context | None = None, *, still_s: float = 60.0) -> None:
        """Until the job has written as many records as were sent; it may stand still for so long."""
        self.await_all_but(0, context, still_s=still_s)

    def await_all_but(self, lost: int, context: Context | None = None, *, still_s: float = 60.0) -> None:
        """Until it has written all but some that were sent."""
        reaches(
            *(self.count, self._sent - lost, "records counted"),
            still_s=still_s,
            context=context or self.log_ends,
        )

    def seconds_until_more(self) -> float:
        """How long it takes, after brokers came back, until the job writes a record that was not there then."""
        began_s, before = time.monotonic(), len(self.written())
        self.send(1)  # it may have done all the others by now
        eventually(lambda: self.count() > before, "a record more", within_s=600, context=self.log_ends)
        return time.monotonic() - began_s

    def count(self) -> int:
        """How many records have come to a consumer that stays: to connect for each look costs brokers 40 ms."""
        self._count += sum(message.error() is None for message in self.seen.consume(1_000, timeout=0.01))
        return self._count

    def assert_each_counted_once(self) -> None:
        """Counts of a key rise by one with each of its records, so a lost or repeated one shows in some count."""
        counted = [(output.key, output.value["count"]) for output in self.written()]
        of_key = Tally(key for key, _ in counted)
        for key, times in of_key.items():
            assert [count for other, count in counted if other == key] == list(range(1, times + 1))
        assert len(counted) == self._sent

    def assert_order_of_keys(self) -> None:
        """The records of a key were processed in the order in which they were sent."""
        last: dict[bytes, int] = {}
        for output in self.written():
            assert output.value["n"] > last.get(output.key, -1)
            last[output.key] = output.value["n"]

    def assert_each_copied_once(self) -> None:
        """For a job that copies."""
        assert sorted(output.value["n"] for output in self.written()) == list(range(self._sent))

    # --- what it says of itself ---

    def epoch(self) -> int:
        """Of the coordinator that leads or led last."""
        with open_job(self.id) as handle:
            state = handle.state()
        return 0 if state is None else state.epoch

    def history(self) -> list[HistoryEvent]:
        """The job's history."""
        with open_job(self.id) as handle:
            return handle.history()

    def set(self, key: str, value: str) -> None:
        """Change the configuration of the running job, as an operator does."""
        command = [sys.executable, "-m", "grete.cli.main", "config", "set", "--job", self.id.name]
        subprocess.run([*command, key, value, "--reason", "test"], check=True, timeout=patient(60))

    def events(self) -> list[str]:
        """The names of what has happened."""
        return [row.event for row in self.history()]

    def await_event(self, event: str) -> None:
        """Until the history has one of them."""
        eventually(lambda: event in self.events(), f"the event {event}", context=self.log_ends)

    def unreachable(self) -> list[str]:
        """The unreachable partitions in the job's status."""
        with open_job(self.id) as handle:
            return [str(ssp) for ssp in handle.lag().unreachable]

    def tasks(self) -> list[str]:
        """Those of the job model in force."""
        with open_job(self.id) as handle:
            return [str(task) for task in handle.active_tasks()]

    def log_ends(self) -> str:
        """The ends of its logs."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in self._logs())

    def has_said(self, text: str) -> bool:
        """Whether it is anywhere in its logs."""
        return any(text in log.read_text() for log in self._logs())

    def _logs(self) -> list[Path]:
        logs = [self._directory / "coordinator.log", *self._directory.rglob("container*.log*")]
        return [log for log in logs if log.is_file()]
