"""A consumer group follows a container: which offsets, when, and what is said when it cannot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from threading import Event

import pytest

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.group_offsets import INTERVAL_S, REFRESH_S, RETRY_S, GroupProgress
from grete.container.offset_publisher import OffsetPublisher, open_publishers
from grete.errors import Fenced, GreteError, StreamError
from grete.model.fence import Fence
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.systems.base import GroupOffsets
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually

A, B, ALL = "kafka.a.0", "kafka.b.0", "kafka.all.0"
WAIT_S = 60.0


def progress(start: Mapping[str, int]) -> GroupProgress:
    return GroupProgress([[A], [B]], start)


def test_first_everything_is_published_and_then_what_moved() -> None:
    group = progress({A: 5, B: 7})
    assert group.due(0) == {A: 5, B: 7}
    group.written({A: 5, B: 7}, 0)
    assert group.due(10) == {}
    group.move({A: 6, B: 7})
    assert group.due(10) == {A: 6}


def test_a_group_goes_backwards_as_well() -> None:
    group = progress({A: 5})
    group.written({A: 5}, 0)
    group.move({A: 2})
    assert group.due(10) == {A: 2}


def test_many_batches_are_one_write_a_second() -> None:
    group = progress({A: 0})
    group.written({A: 0}, 0)
    for offset in range(1, 100):
        group.move({A: offset})
        assert group.due(INTERVAL_S / 2) == {}
    assert group.pause_s(INTERVAL_S / 2) == INTERVAL_S / 2
    assert group.outstanding(INTERVAL_S / 2) == {A: 99}, "at the end there is no time to wait"
    assert group.due(INTERVAL_S) == {A: 99}


def test_what_moves_while_it_is_written_is_written_next() -> None:
    group = progress({A: 1})
    group.move({A: 2})
    group.written({A: 1}, 0)
    assert group.due(INTERVAL_S) == {A: 2}


def test_after_a_failure_it_is_tried_again_whether_or_not_there_is_another_batch() -> None:
    group = progress({A: 1, B: 1})
    group.written({A: 1, B: 1}, 0)
    group.move({A: 2})
    group.failed({A: 2}, 10)
    assert group.is_failing
    assert group.due(10 + RETRY_S - 0.1) == {}
    assert group.due(10 + RETRY_S) == {A: 2}
    group.written({A: 2}, 20)
    assert not group.is_failing
    assert group.due(100) == {}


def test_a_quiet_job_says_it_again_before_brokers_forget() -> None:
    group = progress({A: 1})
    group.written({A: 1}, 0)
    assert group.pause_s(10) == REFRESH_S - 10
    assert group.due(REFRESH_S) == {A: 1}
    group.written({A: 1}, REFRESH_S)
    assert group.due(REFRESH_S + 10) == {}


def test_partitions_of_others_are_never_published() -> None:
    group = progress({A: 1})
    group.move({A: 2, B: 3})
    assert group.due(0) == {A: 2}


def test_what_a_task_that_was_shut_down_reads_stays_where_it_ended() -> None:
    group = progress({A: 1, B: 1})
    group.move({A: 2, B: 2}, shut_down={1})
    group.move({A: 3, B: 3})
    assert group.due(0) == {A: 3, B: 2}


# --- the thread ---


class RecordedGroup(GroupOffsets):
    """A group that keeps what was published, and refuses as a test wants."""

    def __init__(self) -> None:
        self.writes: Queue[dict[str, int]] = Queue()
        self.refusal: GreteError | None = None
        self._closed = Event()

    def write(self, offsets: Mapping[SystemStreamPartition, int]) -> None:
        self.writes.put({str(ssp): offset for ssp, offset in offsets.items()})
        if self.refusal is not None:
            raise self.refusal

    def close(self) -> None:
        self._closed.set()

    def is_closed(self) -> None:
        assert self._closed.wait(WAIT_S)

    def next(self) -> dict[str, int]:
        return self.writes.get(timeout=WAIT_S)


def publishing(group: RecordedGroup, clock: ManualClock) -> OffsetPublisher:
    return OffsetPublisher(lambda: group, progress({A: 5}), clock)


def test_the_start_is_published_and_at_the_end_what_is_left() -> None:
    group, clock = RecordedGroup(), ManualClock()
    with publishing(group, clock) as publisher:
        assert group.next() == {A: 5}
        publisher.publish({A: 6, B: 1})
        publisher.publish({A: 7, B: 2})
    assert group.next() == {A: 7}
    group.is_closed()
    assert group.writes.empty()


def comes(offset: int, group: RecordedGroup, clock: ManualClock, publisher: OffsetPublisher) -> None:
    """Let time pass until the offset is published."""

    def is_published() -> bool:
        clock.advance(RETRY_S)
        publisher.publish({A: offset})
        return not group.writes.empty() and group.next() == {A: offset}

    eventually(is_published, f"{offset} is published", within_s=WAIT_S)


def test_a_failing_group_is_warned_of_once_and_once_more_when_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group, clock = RecordedGroup(), ManualClock()
    group.refusal = StreamError("the group has members")
    with caplog.at_level(logging.INFO, "grete.container"), publishing(group, clock) as publisher:
        for offset in (6, 7, 8):
            comes(offset, group, clock, publisher)
        group.refusal = None
        comes(9, group, clock, publisher)
        comes(10, group, clock, publisher)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["WARNING", "INFO"]
    assert said[0][1].startswith("the group has members. The job goes on")
    group.is_closed()


def test_an_end_does_not_wait_for_a_group_that_fails() -> None:
    group, clock = RecordedGroup(), ManualClock()
    group.refusal = StreamError("no answer")
    with publishing(group, clock) as publisher:
        assert group.next() == {A: 5}
        publisher.publish({A: 6})
    group.is_closed()
    assert group.writes.empty()


def test_a_succeeded_container_publishes_nothing_more() -> None:
    group = RecordedGroup()

    def is_succeeded() -> None:
        with publishing(group, ManualClock()) as publisher:
            assert group.next() == {A: 5}
            publisher.publish({A: 6})
            raise Fenced("container", epoch=1, seen=2)

    with pytest.raises(Fenced):
        is_succeeded()
    group.is_closed()
    assert group.writes.empty()


def test_a_container_that_the_group_shows_as_succeeded_publishes_nothing_more() -> None:
    group, clock = RecordedGroup(), ManualClock()
    group.refusal = Fenced("container", epoch=1, seen=2)
    with publishing(group, clock) as publisher:
        assert group.next() == {A: 5}
        clock.advance(REFRESH_S)
        publisher.publish({A: 6})
    group.is_closed()
    assert group.writes.empty()


# --- of which partitions ---


ON_KAFKA = {"systems.kafka.samza.factory": "kafka"}


def assignment(container: str, config: Mapping[str, str], bucket: int = -1) -> Assignment:
    ssps = (SystemStreamPartition.parse(A), SystemStreamPartition.parse(ALL))
    tasks = (AssignedTask(TaskName("0"), ssps, 0, key_bucket=bucket),)
    settings = Settings.of({"task.inputs": f"{ssps[0].system_stream}", **config})
    return Assignment(JobId("j"), ContainerId(container), 1, settings, tasks)


@pytest.mark.parametrize(("container", "expected"), [("0", {A: 1, ALL: 2}), ("1", {A: 1})])
def test_of_broadcast_partitions_the_first_container_publishes(
    container: str, expected: object, tmp_path: Path
) -> None:
    recorded = RecordedGroup()

    class WithGroups(LocalSystem):
        def group_offsets(self, group: str, fence: Fence | None) -> RecordedGroup:
            assert group == "g"
            return recorded

    config = {**ON_KAFKA, "task.checkpoint.consumer.group": "g", "task.broadcast.inputs": "kafka.all#0"}
    starting = {A: 1, ALL: 2}
    with (
        closing(WithGroups(tmp_path, SystemClock())) as system,
        open_publishers(assignment(container, config), {"kafka": system}, ManualClock(), starting),
    ):
        assert recorded.next() == expected


@pytest.mark.parametrize(("bucket", "expected"), [(0, {A: 1, ALL: 2}), (1, None)])
def test_of_tasks_that_share_a_partition_the_first_publishes(
    bucket: int, expected: object, tmp_path: Path
) -> None:
    recorded = RecordedGroup()

    class WithGroups(LocalSystem):
        def group_offsets(self, group: str, fence: Fence | None) -> RecordedGroup:
            return recorded

    made = assignment("0", {**ON_KAFKA, "task.checkpoint.consumer.group": "g"}, bucket)
    with (
        closing(WithGroups(tmp_path, SystemClock())) as system,
        open_publishers(made, {"kafka": system}, ManualClock(), {A: 1, ALL: 2}) as publishers,
    ):
        assert (not publishers.of_systems) == (expected is None)
        assert expected is None or recorded.next() == expected


def test_on_kafka_the_group_is_the_jobs_own_where_none_is_named(tmp_path: Path) -> None:
    recorded = RecordedGroup()

    class WithGroups(LocalSystem):
        def group_offsets(self, group: str, fence: Fence | None) -> RecordedGroup:
            assert group == f"grete-{made.job}"
            return recorded

    made = assignment("0", ON_KAFKA)
    with (
        closing(WithGroups(tmp_path, SystemClock())) as system,
        open_publishers(made, {"kafka": system}, ManualClock(), {A: 1, ALL: 2}),
    ):
        assert recorded.next() == {A: 1, ALL: 2}


def test_each_system_that_the_job_reads_has_its_own_part_of_the_group(tmp_path: Path) -> None:
    """Under the fence in the system that it commits to, where the fence is."""
    recorded = {name: RecordedGroup() for name in ("kafka", "other")}
    fenced = {}

    class WithGroups(LocalSystem):
        def group_offsets(self, group: str, fence: Fence | None) -> RecordedGroup:
            assert group == f"grete-{made.job}"
            fenced[self.directory.name] = fence is not None
            return recorded[self.directory.name]

    there, here, embedded = (
        SystemStreamPartition.parse(f"{name}.in.0") for name in ("other", "kafka", "local")
    )
    tasks = (AssignedTask(TaskName("0"), (here, there, embedded), 0),)
    types = {"kafka": "kafka", "other": "kafka", "local": "local"}
    config = {f"systems.{name}.samza.factory": kind for name, kind in types.items()}
    inputs = {"task.inputs": "kafka.in,other.in,local.in", "task.checkpoint.system": "kafka"}
    made = Assignment(JobId("j"), ContainerId("0"), 1, Settings.of({**config, **inputs}), tasks)
    starting = {str(here): 1, str(there): 2, str(embedded): 3}
    with ExitStack() as held:
        systems = {name: WithGroups(tmp_path / name, SystemClock()) for name in types}
        for system in systems.values():
            held.enter_context(closing(system))
        publishers = held.enter_context(open_publishers(made, systems, ManualClock(), starting))
        assert (recorded["kafka"].next(), recorded["other"].next()) == ({str(here): 1}, {str(there): 2})
        publishers.publish({str(here): 5, str(there): 6, str(embedded): 7})
    assert (recorded["kafka"].next(), recorded["other"].next()) == ({str(here): 5}, {str(there): 6})
    assert fenced == {"kafka": True, "other": False}


@pytest.mark.parametrize("factory", ["local", "eventhubs", "my.own:factory"])
def test_without_the_key_nothing_is_published_on_other_systems(system: LocalSystem, factory: str) -> None:
    starting = {A: 1, ALL: 2}
    made = assignment("0", {"systems.kafka.samza.factory": factory})
    with open_publishers(made, {"kafka": system}, ManualClock(), starting) as publishers:
        assert publishers.of_systems == []


def test_a_system_without_groups_is_reported_once_and_the_job_goes_on(
    system: LocalSystem, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"systems.kafka.samza.factory": "my.own:factory", "task.checkpoint.consumer.group": "g"}
    starting = {A: 1, ALL: 2}
    with open_publishers(assignment("0", config), {"kafka": system}, ManualClock(), starting) as publishers:
        assert publishers.of_systems
        publishers.publish({A: 2})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
