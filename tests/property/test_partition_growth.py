"""A stateful job whose input grows keeps every key with its state, in order (SEP-5)."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grete
from grete.config.settings import Settings
from grete.coordinator.assignment_records import assignment_records
from grete.coordinator.job_model import Calculated, Remembered, calculate
from grete.errors import ConfigError
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import SystemStream, TaskName
from grete.systems.partitioner import partition_of
from grete.testing.clock import ManualClock
from grete.testing.job import JobUnderTest

IN, OTHER = SystemStream("local", "in"), SystemStream("local", "other")
GROUPERS = ("GroupByPartitionFactory", "GroupBySystemStreamPartitionFactory")


class Coordinator:
    """Calculates one model after another, each from what the coordinator stream remembers of the last."""

    def __init__(self, grouper: str) -> None:
        clock = ManualClock()
        stream = CoordinatorStream(MemoryKeyedLog(clock), clock, source="test")
        self._assignments, self._mapping = TaskAssignments(stream), ChangelogMapping(stream)
        self._config = {
            "task.inputs": "local.in,local.other",
            "stores.counts.factory": "grete.store.sqlite",
            "job.systemstreampartition.grouper.factory": grouper,
        }

    def calculate(self, partitions: int, others: int) -> Calculated:
        remembered = Remembered(
            self._assignments.read(),
            self._mapping.read(),
            self._assignments.ssps(),
            self._assignments.modes(),
        )
        calculated = calculate(Settings.of(self._config), {IN: partitions, OTHER: others}, remembered)
        self._mapping.write(calculated.changelog)
        self._assignments.write(assignment_records(calculated.model, remembered))
        return calculated


def owner(calculated: Calculated, stream: SystemStream, key: bytes, partitions: int) -> tuple[TaskName, int]:
    """The task and changelog partition that have a key's state."""
    partition = partition_of(key, partitions)
    (task,) = (
        task
        for task in calculated.model.tasks.values()
        if any(ssp.system_stream == stream and ssp.partition == partition for ssp in task.ssps)
    )
    return task.name, task.changelog_partition


@given(
    grouper=st.sampled_from(GROUPERS),
    first=st.integers(1, 6),
    others=st.integers(1, 6),
    growths=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
    keys=st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=8),
)
def test_however_streams_grow_a_key_stays_with_its_task_and_changelog(
    grouper: str, first: int, others: int, growths: list[tuple[int, int]], keys: list[bytes]
) -> None:
    coordinator = Coordinator(grouper)
    calculated = coordinator.calculate(first, others)
    before = {key: owner(calculated, IN, key, first) for key in keys}
    others_before = {key: owner(calculated, OTHER, key, others) for key in keys}
    for factor, other_factor in growths:
        first, others = first * factor, others * other_factor
        calculated = coordinator.calculate(first, others)
        assert {key: owner(calculated, IN, key, first) for key in keys} == before
        assert {key: owner(calculated, OTHER, key, others) for key in keys} == others_before


@pytest.mark.parametrize(("partitions", "why"), [(6, "no multiple"), (2, "lost partitions")])
def test_another_count_is_refused_with_the_way_out(partitions: int, why: str) -> None:
    coordinator = Coordinator(GROUPERS[0])
    coordinator.calculate(4, 1)
    with pytest.raises(ConfigError, match=f"had 4 partitions and has {partitions}.*{why}.*multiple"):
        coordinator.calculate(partitions, 1)


# --- with records, through the real task runner, stores and commits ---

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
    "task.max.records.per.batch": "5",
}
KEYS = string.ascii_lowercase[:9]


class Counter(grete.StreamTask):
    """Says of every message which of its key it is, by its own count and by the sender's."""

    def init(self, context: grete.TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", [count, envelope.message], key=envelope.key)


class Sender:
    """Numbers the messages of each key."""

    def __init__(self, job: JobUnderTest) -> None:
        self._job = job
        self.sent = dict.fromkeys(KEYS, 0)

    def send(self, keys: str) -> None:
        for key in keys:
            self.sent[key] += 1
            self._job.send("local.in", self.sent[key], key=key)

    def assert_counted_in_order(self) -> None:
        seen: dict[str, list[list[int]]] = {key: [] for key in KEYS}
        for message in self._job.outputs("local.out"):
            seen[message.key].append(message.message)
        assert seen == {key: [[i, i] for i in range(1, n + 1)] for key, n in self.sent.items()}


STEPS = st.lists(
    st.one_of(
        st.text(KEYS, min_size=1, max_size=30),
        st.sampled_from(["BATCH", "GROW", "RESTART", "KILL", "LOSE STORES"]),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, partitions=st.integers(1, 3))
def test_growing_at_any_moment_no_message_is_lost_repeated_or_out_of_order(
    steps: list[str], partitions: int
) -> None:
    with JobUnderTest(Counter, CONFIG, partitions={"local.in": partitions}) as job:
        sender = Sender(job)
        for step in steps:
            match step:
                case "BATCH":
                    job.run_batch()
                case "GROW":
                    if partitions < 12:
                        partitions *= 2
                        job.add_partitions("local.in", partitions)
                case "RESTART":
                    job.restart()
                case "KILL":
                    job.run_batch(commit=False)
                    job.restart()
                case "LOSE STORES":
                    job.restart(lose_stores=True)
                case keys:
                    sender.send(keys)
        job.restart()
        job.run()
        sender.assert_counted_in_order()


def test_what_came_into_a_new_partition_before_the_restart_is_read_though_the_default_is_upcoming() -> None:
    config = {**CONFIG, "systems.local.samza.offset.default": "upcoming"}
    with JobUnderTest(Counter, config, partitions={"local.in": 2}) as job:
        sender = Sender(job)
        sender.send(KEYS)
        job.run()
        job.add_partitions("local.in", 4)
        sender.send(KEYS * 3)
        assert job.run().records < 3 * len(KEYS)
        job.restart()
        job.run()
        sender.assert_counted_in_order()
        assert sorted(job.model.tasks) == ["Partition 0", "Partition 1"]


def test_a_new_partition_waits_for_what_its_keys_left_in_the_old_one() -> None:
    with JobUnderTest(Counter, CONFIG, partitions={"local.in": 1}) as job:
        sender = Sender(job)
        sender.send(KEYS * 4)
        job.add_partitions("local.in", 2)
        job.add_partitions("local.in", 8)
        sender.send(KEYS * 4)
        job.restart()
        for _ in range(4):
            job.run_batch()
            offsets = job.checkpoints()["Partition 0"]
            is_behind = offsets["local.in.0"] + 1 < len(KEYS) * 4
            assert not is_behind or all(offsets[ssp] == -1 for ssp in set(offsets) - {"local.in.0"})
        job.run()
        sender.assert_counted_in_order()
