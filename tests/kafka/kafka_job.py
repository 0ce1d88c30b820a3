"""A StreamTask job on a broker without Spark: one container, its driver and as many workers as a test wants."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition

import grete
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.batches import Batch, Batches
from grete.container.start import prepare
from grete.kafka.client import KafkaConnection
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.factory import open_system
from grete.systems.kafka.system import KafkaSystem
from grete.systems.outputs import create_outputs
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.results import TaskResult
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share import Share, run_share
from grete.testing.waiting import eventually

KEYS = 7
_BROKER_BACK_S = 120
"""The broker may be killed twice while records are on their way."""


class Counter(grete.StreamTask):
    """Counts each key; every output says which count it is, so loss and duplication show."""

    def init(self, context: grete.TaskContext) -> None:
        self.counts = context.store("counts")
        self.out = context.config["test.out"]

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        message = {"count": count} if envelope.message is None else {"count": count, **envelope.message}
        collector.send(self.out, message, key=envelope.key)


class Job:
    """Streams of its own on a shared broker."""

    def __init__(
        self, bootstrap: str, home: Path, *, partitions: int = 2, config: Mapping[str, str] | None = None
    ) -> None:
        self.mark = uuid.uuid4().hex[:8]
        self.home = home
        self.partitions = partitions
        self.input, self.output = f"in-{self.mark}", f"out-{self.mark}"
        self.job = JobId(f"counter-{self.mark}", "1")
        self.config = {
            "job.name": self.job.name,
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.samza.key.serde": "string",
            "systems.kafka.samza.msg.serde": "json",
            "task.checkpoint.replication.factor": "1",
            "task.class": f"{__name__}:Counter",
            "task.outputs": f"kafka.{self.output}",
            "task.commit.groups": "2",
            "test.out": f"kafka.{self.output}",
            "stores.counts.factory": "grete.store.sqlite",
            **(config or {}),
        }
        self.system = self.open()
        self.system.create_stream(StreamSpec(self.input, partitions))
        self.system.create_stream(StreamSpec(self.changelog, partitions, compacted=True))
        # a broker that is killed lets the client send again: what is counted must be there once
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 1000}
        )
        self._connection = KafkaConnection({"bootstrap.servers": bootstrap}, 20.0, SystemClock())
        self.sent = 0

    @property
    def changelog(self) -> str:
        return f"{self.job}-counts-changelog"

    def open(self) -> KafkaSystem:
        made = open_system(Settings.of(self.config), "kafka", self.home, SystemClock())
        assert isinstance(made, KafkaSystem)
        return made

    def send(self, key: str, value: bytes = b"{}", partition: int | None = None) -> None:
        self._producer.produce(
            self.input, value, key, hash(key) % self.partitions if partition is None else partition
        )
        assert self._producer.flush(_BROKER_BACK_S) == 0

    def fill(self, records: int) -> None:
        for number in range(self.sent, self.sent + records):
            key = number % KEYS
            self._producer.produce(self.input, b"{}", f"key{key}", key % self.partitions)
        assert self._producer.flush(_BROKER_BACK_S) == 0
        self.sent += records

    def records(self, stream: str) -> Iterator[dict[str, Any]]:
        """Every committed one; a commit is durable when it returns, and its marks follow a moment later."""
        partitions = [TopicPartition(stream, p) for p in range(self.system.partition_count(stream))]
        ends = self._connection.ends(partitions, is_stable=False)
        while any(
            self._connection.ends(partitions, is_stable=True)[where] < end for where, end in ends.items()
        ):
            time.sleep(0.01)
        for where, end in ends.items():
            for _, batch in self.system.read(stream, where.partition, 0, end):
                yield from batch.to_pylist()

    def counts(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for record in self.records(self.output):
            found.setdefault(record["key"].decode(), []).append(json.loads(record["value"])["count"])
        return found

    def assert_exactly_once(self) -> None:
        expected = {
            f"key{key}": list(range(1, len(range(key, self.sent, KEYS)) + 1))
            for key in range(min(KEYS, self.sent))
        }
        found = self.counts()
        wrong = {key: (found.get(key), rows) for key, rows in expected.items() if found.get(key) != rows}
        assert not wrong, wrong

    def assignment(self, epoch: int, **more: Any) -> Assignment:
        tasks = tuple(
            AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition("kafka", self.input, p),), p)
            for p in range(self.partitions)
        )
        return Assignment(self.job, ContainerId("0"), epoch, self.config, tasks, **more)

    def container(self, epoch: int, assignment: Assignment | None = None) -> Container:
        return Container(self, assignment or self.assignment(epoch))

    def close(self) -> None:
        self.system.close()


class Container:
    """One incarnation of the driver."""

    def __init__(self, job: Job, assignment: Assignment) -> None:
        self.system = job.open()
        inputs = {task.ssps[0].system_stream: len(assignment.tasks) for task in assignment.tasks}
        create_outputs(Settings.of(assignment.config), "kafka", self.system, inputs)
        started = prepare(assignment, self.system, None, SystemClock(), job.home)
        self.batches = Batches(started, SystemClock())

    def worker(self) -> TaskWorkers:
        return TaskWorkers(self.batches.spec)

    def plan(self) -> PlannedBatch:
        """The next batch. A broker that has just come back may not say yet that there is input."""
        batch: Batch | None = None

        def is_there() -> bool:
            nonlocal batch
            batch = self.batches.next()
            return batch is not None

        eventually(is_there, "a batch", within_s=_BROKER_BACK_S)
        assert batch is not None
        return PlannedBatch(self.batches, batch)

    def run(self, worker: TaskWorkers) -> BatchOutcome:
        """One batch, every slot by the same worker."""
        batch = self.plan()
        return batch.commit([result for slot in batch.groups for result in batch.attempt(worker, slot)])

    def close(self) -> None:
        self.system.close()


class PlannedBatch:
    """A batch on its way; `attempt` is what Spark starts, as often and wherever it likes."""

    def __init__(self, batches: Batches, batch: Batch) -> None:
        self._batches = batches
        self._batch = batch
        self.plan = batch.plan
        self.groups = batch.groups

    def attempt(self, worker: TaskWorkers, slot: int, *, is_repeated: bool = False) -> list[TaskResult]:
        share = Share(slot, self.groups[slot], self._batch.tick, is_repeated)
        return run_share(worker, self.plan, share)

    def commit(self, results: list[TaskResult]) -> BatchOutcome:
        return self._batches.commit(self._batch, results)
