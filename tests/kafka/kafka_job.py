"""A StreamTask job on a broker without Spark: one container, its driver and as many workers as a test wants."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition

import grete
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.epochs import Epoch
from grete.container.process_state import EndedEpoch
from grete.container.start import prepare
from grete.kafka.client import KafkaConnection
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.factory import open_system
from grete.systems.kafka.system import KafkaSystem
from grete.systems.outputs import OutputSystems, create_outputs
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share_loop import ShareLoop
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

    name = "kafka"
    """Of the system."""

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
            "task.inputs": f"{self.name}.{self.input}",
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
            AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition(self.name, self.input, p),), p)
            for p in range(self.partitions)
        )
        return Assignment(self.job, ContainerId("0"), epoch, Settings.of(self.config), tasks, **more)

    def container(
        self,
        epoch: int,
        assignment: Assignment | None = None,
        *,
        slots_at_most: int | None = None,
        ended: EndedEpoch | None = None,
    ) -> Container:
        """`ended` is an epoch before, of which nothing is known to be at work."""
        return Container(self, assignment or self.assignment(epoch), slots_at_most, ended)

    def close(self) -> None:
        self.system.close()


class Container:
    """One incarnation of the driver, and the shares that a test begins for it."""

    def __init__(
        self,
        job: Job,
        assignment: Assignment,
        slots_at_most: int | None = None,
        ended: EndedEpoch | None = None,
    ) -> None:
        self.system = job.open()
        inputs = {task.ssps[0].system_stream: len(assignment.tasks) for task in assignment.tasks}
        settings = assignment.settings
        with closing(OutputSystems(settings, job.name, self.system, job.home, SystemClock())) as outputs:
            create_outputs(settings, outputs, inputs)
        started = prepare(assignment, self.system, None, SystemClock(), job.home, ended=ended)
        self._right = started.epoch
        self.epoch = Epoch(started, SystemClock(), slots_at_most=slots_at_most)
        self._shares: dict[tuple[str, int], ShareLoop] = {}

    @property
    def ended(self) -> EndedEpoch:
        """The epoch, as if nothing of it were at work."""
        return EndedEpoch(self._right, self.epoch.known)

    def worker(self) -> TaskWorkers:
        return TaskWorkers(self.epoch.spec)

    def share(self, worker: TaskWorkers, slot: int, *, commit_s: float = 0.0) -> ShareLoop:
        """Spark begins a share, as often and wherever it likes."""
        return ShareLoop(worker, self.epoch.start_of(slot), SystemClock(), commit_s=commit_s)

    def run(self, worker: TaskWorkers, *, slots: Sequence[int] | None = None) -> BatchOutcome:
        """All that is there now, by shares of this worker that go on from run to run."""
        ends = {p: int(o.upcoming) for p, o in self.system.offsets(self._input).items()}
        done = BatchOutcome(commits=0)
        for slot in self.epoch.slots if slots is None else slots:
            key = worker.id, slot
            if key not in self._shares:
                self._shares[key] = self.share(worker, slot)
            self._work(self._shares[key], ends, done)
        return done

    def _work(self, share: ShareLoop, ends: Mapping[int, int], done: BatchOutcome) -> None:
        def is_at_the_end() -> bool:
            where = {SystemStreamPartition.parse(ssp): at for ssp, at in share.next_offsets.items()}
            if share.is_settled and all(at >= ends[ssp.partition] for ssp, at in where.items()):
                return True
            made = share.step(1.0)
            if made is not None:
                outcome = self.epoch.committed(made)
                done.commits += 1
                done.records += outcome.records
                done.dead_letters += outcome.dead_letters
                done.commit_s += outcome.commit_s
            return False

        eventually(is_at_the_end, "the end of the input", within_s=_BROKER_BACK_S)

    @property
    def _input(self) -> str:
        return self.epoch.spec.ssps[0].stream

    def close(self) -> None:
        self.system.close()
