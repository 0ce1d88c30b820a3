"""Cost of commits on Kafka, and speed of StreamTasks there: for `python -m benchmarks.kafka`.

Commits: a batch of so many tasks, each with a checkpoint and an output, in so many groups; two threads stand for two
executors. Tasks: one worker without Spark, from records in a topic to committed outputs.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer

import grete
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.epochs import Epoch
from grete.container.start import prepare
from grete.keyed_log.base import Entry, Fence
from grete.model.ids import ContainerId, JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.kafka.system import KafkaSystem
from grete.systems.outputs import OutputSystems, create_outputs
from grete.systems.records import records
from grete.testing.job_container import LocalShares
from grete.testing.kafka_broker import KafkaCluster

TASKS = (1, 10, 100, 1_000)
GROUPS = (1, 2, 4, 8, 16)
_ROUNDS = 8
BATCH = 100_000
Figures = dict[str, float]


def _config(bootstrap: str, **more: str) -> dict[str, str]:
    return {
        "job.name": f"bench-{uuid.uuid4().hex[:6]}",
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": bootstrap,
        "systems.kafka.default.stream.replication.factor": "1",
        "systems.kafka.samza.offset.default": "oldest",
        "systems.kafka.samza.key.serde": "string",
        "systems.kafka.samza.msg.serde": "bytes",
        "task.checkpoint.replication.factor": "1",
        **more,
    }


def commits(bootstrap: str) -> list[Figures]:
    """Time of a batch's commits, and transactions a second, by tasks and groups."""
    return [_commits(bootstrap, tasks, groups) for tasks in TASKS for groups in GROUPS if groups <= tasks]


def _commits(bootstrap: str, tasks: int, groups: int) -> Figures:
    settings, clock, mark = (
        Settings.of(_config(bootstrap, **{"task.commit.groups": str(groups)})),
        SystemClock(),
        uuid.uuid4().hex[:6],
    )
    system = KafkaSystem(settings, "kafka", clock)
    out, log, fence = f"out-{mark}", f"log-{mark}", Fence(f"container/{mark}", 1)
    system.create_stream(StreamSpec(out, min(tasks, 32)))
    system.checkpoint_log(log)
    system.raise_fence([fence])
    spans_ms: list[float] = []

    def executor(own: range) -> None:
        own_system = KafkaSystem(settings, "kafka", clock)
        slots = {slot: own_system.transactions(fence, slot, [log, out]) for slot in own}
        for number in range(_ROUNDS + 1):
            for slot, group in slots.items():
                started = time.monotonic()
                deadline_s = started + 60
                mine = range(slot, tasks, groups)
                if not group.is_open:
                    group.open(deadline_s)
                group.begin()
                for task in mine:
                    group.send_batch(out, task % min(tasks, 32), records([b"k"], [b"v" * 50], [number]))
                group.settle(deadline_s)
                group.send_entries(log, _entries(mine, number), number)
                group.settle(deadline_s)
                group.commit(deadline_s)
                if number > 0:  # the first opens the id
                    spans_ms.append((time.monotonic() - started) * 1000)
        own_system.close()

    with ThreadPoolExecutor(2) as pool:
        started = time.monotonic()
        list(pool.map(executor, (range(0, groups, 2), range(1, groups, 2))))
    total_s = sum(spans_ms) / 1000 / min(2, groups)
    system.close()
    found = {
        "tasks": tasks,
        "groups": groups,
        "batch_ms": round(total_s * 1000 / _ROUNDS, 1),
        "commit_p50_ms": round(statistics.median(spans_ms), 1),
        "transactions_per_s": round(len(spans_ms) / total_s, 1),
        "with_opening_s": round(time.monotonic() - started, 1),
    }
    print(found, file=sys.stderr, flush=True)
    return found


def _entries(tasks: range, number: int) -> list[Entry]:
    made = {
        TaskName(f"Partition {task}"): TaskCommit(
            {SystemStreamPartition("kafka", "in", task): str(number)},
            "lineage",
            number,
            "token",
            {"s": number},
        )
        for task in tasks
    }
    return commit_entries(made, grouper="grouper")


class Through(grete.StreamTask):
    """Sends what it gets."""

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        """See StreamTask."""
        collector.send("kafka.through", envelope.message, key=envelope.key)


class Count(grete.StreamTask):
    """Counts by key in a store, and sends each count."""

    def init(self, context: grete.TaskContext) -> None:
        """See StreamTask."""
        self._counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        """See StreamTask."""
        count = (self._counts.get(envelope.key) or 0) + 1
        self._counts.put(envelope.key, count)
        collector.send("kafka.through", b"%d" % count, key=envelope.key)


def tasks(bootstrap: str) -> dict[str, Figures]:
    """Records a second of one worker, reading and committing included."""
    settings: dict[str, Mapping[str, str]] = {
        "pass-through": {"task.class": f"{__name__}:Through"},
        "stateful": {"task.class": f"{__name__}:Count", "stores.counts.factory": "grete.store.sqlite"},
    }
    return {name: _tasks(bootstrap, more) for name, more in settings.items()}


def _tasks(bootstrap: str, more: Mapping[str, str]) -> Figures:
    config = _config(bootstrap, **{"task.outputs": "kafka.through", "task.commit.groups": "2", **more})
    job, clock, batches = JobId(config["job.name"], "1"), SystemClock(), 4
    system = KafkaSystem(Settings.of(config), "kafka", clock)
    name = f"in-{uuid.uuid4().hex[:6]}"
    system.create_stream(StreamSpec(name, 2))
    for store in Settings.of(config).store_names:
        system.create_stream(
            StreamSpec(Settings.of(config).store(store).changelog_stream(job), 2, compacted=True)
        )
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 0})
    for number in range(BATCH * batches):
        producer.produce(name, b'{"origin": "JFK", "delay": 12}', b"key%d" % (number % 1_000), number % 2)
    producer.flush()
    inputs = (
        AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition("kafka", name, p),), p)
        for p in range(2)
    )
    assignment = Assignment(job, ContainerId("0"), 1, Settings.of(config), tuple(inputs))
    with tempfile.TemporaryDirectory() as home:
        settings = Settings.of(config)
        with closing(OutputSystems(settings, "kafka", system, Path(home), clock)) as outputs:
            create_outputs(settings, outputs, {SystemStream("kafka", name): 2})
        epoch = Epoch(prepare(assignment, system, None, clock, Path(home)), clock)
        shares = LocalShares(epoch, clock, commit_s=0.0, records_at_most=BATCH // len(epoch.slots))
        spans_s = []
        for _ in range(batches):
            done, started = 0, time.monotonic()
            while done < BATCH:
                done += sum(outcome.records for outcome in shares.step(1.0))
            spans_s.append(time.monotonic() - started)
        shares.close()
    system.close()
    found = {
        "records_per_s": round(BATCH / statistics.median(spans_s[1:])),
        "first_batch_s": round(spans_s[0], 2),
    }
    print(found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure these alone, on a broker of their own, and print."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory))
        cluster.start()
        try:
            figures = {"stream_tasks": tasks(cluster.bootstrap), "commits": commits(cluster.bootstrap)}
        finally:
            cluster.stop()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
