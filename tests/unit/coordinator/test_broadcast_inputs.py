"""Partitions that every task reads, and what becomes of the tasks that read others: Samza's model, at every start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from grete.config.settings import Settings
from grete.coordinator.plan import JobPlan, Planner
from grete.errors import ConfigError, StreamNotFound
from grete.grouping.ssp import KEY
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.assignments import TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.job import JobModel
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

JOB = JobId("test")
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
}
PARTLY = {**CONFIG, "task.broadcast.inputs": "local.in#[3-4]"}
RULES = {**CONFIG, "task.broadcast.inputs": "local.rules#0"}


def counts(job: JobUnderTest) -> list[tuple[object, object]]:
    return [(one.key, one.message) for one in job.outputs("local.out")]


class Starts:
    """A coordinator's starts on one stream, over an embedded system."""

    def __init__(self, home: Path) -> None:
        clock = ManualClock()
        self._home, self._clock = home, clock
        self.system = LocalSystem(home / "local", clock)
        self.stream = CoordinatorStream(MemoryKeyedLog(clock), clock, source="test")

    def create(self, **partitions: int) -> None:
        for name, count in partitions.items():
            self.system.ensure_stream(StreamSpec(name, count))

    def start(self, config: dict[str, str]) -> JobPlan:
        with ExitStack() as stack:
            return Planner(JOB, self._home, self.stream, self._clock, stack).plan(Settings.of(config))

    def close(self) -> None:
        self.system.close()


@contextmanager
def starts_in(home: Path) -> Iterator[Starts]:
    made = Starts(home)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def starts(home: Path) -> Iterator[Starts]:
    with starts_in(home) as made:
        yield made


def read_by(model: JobModel) -> dict[str, list[str]]:
    return {name: [f"{s.stream}.{s.partition}" for s in sorted(t.ssps)] for name, t in model.tasks.items()}


def test_a_plain_restart_of_a_stateful_job_whose_input_is_partly_broadcast_moves_nothing(
    start_job: StartJob,
) -> None:
    job = start_job(CountingTask, PARTLY, partitions={"local.in": 8})
    before = read_by(job.model)
    assert before["Partition 6"] == ["in.3", "in.4", "in.6"]
    job.send("local.in", None, key="six", partition=6)
    job.run()
    job.restart()
    assert read_by(job.model) == before
    job.send("local.in", None, key="six", partition=6)
    job.run()
    assert counts(job) == [("six", 1), ("six", 2)]


def test_a_partly_broadcast_input_that_grows_keeps_its_keys_with_their_task(starts: Starts) -> None:
    starts.create(**{"in": 4})
    config = {**CONFIG, "task.broadcast.inputs": "local.in#3"}
    starts.start(config)
    starts.system.add_partitions("in", 8)
    grown = read_by(starts.start(config).model)
    assert [grown[f"Partition {p}"] for p in range(3)] == [
        [f"in.{p}", "in.3", f"in.{p + 4}"] for p in range(3)
    ]
    assert [grown[f"Partition {p}"] for p in range(4, 8)] == [["in.3"]] * 3 + [["in.3", "in.7"]]


def test_of_a_broadcast_stream_only_the_listed_partitions_are_read_and_they_make_no_task(
    start_job: StartJob,
) -> None:
    job = start_job(CountingTask, RULES, partitions={"local.in": 2, "local.rules": 5})
    assert read_by(job.model) == {"Partition 0": ["in.0", "rules.0"], "Partition 1": ["in.1", "rules.0"]}
    for partition in range(5):
        job.send("local.rules", None, key=f"rule {partition}", partition=partition)
    job.run()
    assert counts(job) == [("rule 0", 1), ("rule 0", 1)]


def test_a_broadcast_stream_that_grows_changes_nothing(starts: Starts) -> None:
    starts.create(**{"in": 2, "rules": 4})
    config = {**CONFIG, "task.broadcast.inputs": "local.rules#[0-3]"}
    before = starts.start(config)
    starts.system.add_partitions("rules", 8)
    assert starts.start(config).model == before.model
    assert before.partitions == {SystemStream("local", "in"): 2}  # what monitors compare with


def test_a_broadcast_stream_has_to_exist_with_the_partitions_that_are_named(starts: Starts) -> None:
    starts.create(**{"in": 2})
    with pytest.raises(StreamNotFound):
        starts.start(RULES)
    starts.create(rules=2)
    with pytest.raises(
        ConfigError, match=r"names partition 2 of local\.rules, which has 2.*grete stream grow"
    ):
        starts.start({**CONFIG, "task.broadcast.inputs": "local.rules#[0-2]"})


def test_streams_of_both_kinds_are_measured() -> None:
    assert [str(stream) for stream in Settings.of(RULES).task.all_inputs] == ["local.in", "local.rules"]


def test_a_job_of_a_version_that_read_every_partition_comes_up_with_the_tasks_of_its_inputs(
    start_job: StartJob,
) -> None:
    """That version made of `task.inputs=in` and `task.broadcast.inputs=rules#0` what today's makes of both inputs."""
    was = {**RULES, "task.inputs": "local.in,local.rules"}
    job = start_job(CountingTask, was, partitions={"local.in": 2, "local.rules": 5})
    assert len(job.model.tasks) == 5
    job.send("local.in", None, key="one", partition=1)
    job.run()
    job.restart(config={"task.inputs": "local.in"})
    assert read_by(job.model) == {"Partition 0": ["in.0", "rules.0"], "Partition 1": ["in.1", "rules.0"]}
    job.send("local.in", None, key="one", partition=1)
    job.run()
    assert counts(job) == [("one", 1), ("one", 2)]
    assert job.restart().model.tasks.keys() == {"Partition 0", "Partition 1"}


def test_partitions_that_a_restart_of_an_older_version_moved_stay_where_their_state_is_now(
    starts: Starts,
) -> None:
    """There their checkpoint and their newest state are; going back would count what was counted again."""
    starts.create(**{"in": 8})
    starts.start(PARTLY)
    moved = '{"system":"local","partition":6,"stream":"in","keyBucket":-1}'
    record = ("set-task-partition-assignment", moved, {"taskNames": '["Partition 0"]'})
    TaskAssignments(starts.stream).write([record])
    assert read_by(starts.start(PARTLY).model)["Partition 0"] == ["in.0", "in.3", "in.4", "in.6"]
    assert (
        TaskAssignments(starts.stream)
        .ssps()[TaskName("Partition 0")]
        .count(SystemStreamPartition("local", "in", 6))
    )


def test_a_stateful_job_of_which_every_container_reads_everything_starts_again(start_job: StartJob) -> None:
    grouper = "org.apache.samza.container.grouper.stream.AllSspToSingleTaskGrouperFactory"
    config = {**CONFIG, KEY: grouper, "job.container.count": "2"}
    job: JobUnderTest = start_job(CountingTask, config, partitions={"local.in": 2})
    before = read_by(job.model)
    assert before == {"Task-0": ["in.0", "in.1"], "Task-1": ["in.0", "in.1"]}
    assert read_by(job.restart().model) == before
    one = {"Task-0": ["in.0", "in.1"]}
    assert read_by(job.restart(config={"job.container.count": "1"}).model) == one
    assert read_by(job.restart(config={"job.container.count": "2"}).model) == before


def test_a_side_input_with_another_number_of_partitions_is_named(
    starts: Starts, caplog: pytest.LogCaptureFixture
) -> None:
    starts.create(**{"in": 4, "names": 2})
    filled = {**CONFIG, "stores.names.side.inputs": "local.names"}
    starts.start(filled)
    assert "the side input local.names has 2 partitions, other inputs 4" in caplog.text
    caplog.clear()
    broadcast = {**filled, "task.broadcast.inputs": "local.names#[0-1]"}
    assert read_by(starts.start(broadcast).model)["Partition 3"] == ["in.3", "names.0", "names.1"]
    starts.system.add_partitions("names", 4)
    starts.start(filled)
    assert "names" not in caplog.text
