"""Hand-over of startpoints to tasks: they are fanned out, merged, and taken out once applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from grete import failpoints
from grete.errors import Fenced, LogError
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.startpoint_hand_over import DELIVERED_FOR_S, AppliedTimes, StartpointHandOver
from grete.metadata.startpoint_state import read_state_requests, state_entry
from grete.metadata.startpoints import (
    EXPIRES_MS,
    FAN_OUT_NAMESPACE,
    NAMESPACE,
    decoded_fan_outs,
    startpoint_entry,
    startpoint_key,
)
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.testing.clock import ManualClock
from grete.wire.coordinator_message import encode_key
from grete_workbench.samza.namespaced_store import NamespacedStore

A, B = SystemStreamPartition("local", "in", 0), SystemStreamPartition("local", "in", 1)
T0, T1 = TaskName("Partition 0"), TaskName("Partition 1")
TASKS = {T0: (A,), T1: (B,)}


class Job:
    """A coordinator stream, and what the tasks have applied."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryKeyedLog(self.clock)
        self.stream = CoordinatorStream(self.log, self.clock, source="test")
        self.applied: dict[TaskName, Mapping[SystemStreamPartition, int]] = {}
        self.hand_over = StartpointHandOver(self.stream, self.clock, self._applied)

    def _applied(self) -> AppliedTimes:
        return self.applied

    def ask(self, ssp: SystemStreamPartition, task: TaskName | None, startpoint: Startpoint) -> None:
        self.stream.append([startpoint_entry(startpoint_key(ssp, task), startpoint)])

    def pending(self, tasks: Mapping[TaskName, tuple[SystemStreamPartition, ...]] = TASKS) -> dict[str, str]:
        """`task/ssp` -> startpoint."""
        found = self.hand_over.pending(tasks)
        return {
            f"{task}/{ssp}": str(one)
            for task, pending in found.items()
            for ssp, one in pending.startpoints.items()
        }

    def oldest(self) -> Startpoint:
        return Startpoint(StartpointKind.OLDEST, self.clock.wall_ms())


class LogWithOthers(MemoryKeyedLog):
    """Lets another writer append while an append is on its way."""

    meanwhile: list[Entry]

    def append(
        self, entries: Sequence[Entry], *, fence: Fence | None = None, append_id: str | None = None
    ) -> int:
        others, self.meanwhile = self.meanwhile, []
        if others:
            super().append(others)
        return super().append(entries, fence=fence, append_id=append_id)


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_startpoint_that_is_written_while_the_one_before_is_handed_over_is_not_lost(job: Job) -> None:
    """The key of the one before is deleted, and the newer one is under the same key."""
    log = LogWithOthers(job.clock)
    log.meanwhile = []
    job.stream = CoordinatorStream(log, job.clock, source="test")
    job.hand_over = StartpointHandOver(job.stream, job.clock, job._applied)
    job.ask(A, None, job.oldest())
    job.clock.advance(1)
    later = Startpoint(StartpointKind.UPCOMING, job.clock.wall_ms())
    log.meanwhile = [startpoint_entry(startpoint_key(A, None), later)]
    assert job.pending() == {"Partition 0/local.in.0": "oldest"}
    assert job.hand_over.undelivered(TASKS) == {T0}
    assert job.pending() == {"Partition 0/local.in.0": "upcoming"}
    assert job.hand_over.undelivered(TASKS) == set()


@pytest.fixture
def later(job: Job, monkeypatch: pytest.MonkeyPatch) -> Startpoint:
    """A startpoint that was asked for while the one before was handed over by a coordinator that died over it."""
    log = LogWithOthers(job.clock)
    log.meanwhile = []
    job.log, job.applied = log, {}
    first = CoordinatorStream(log, job.clock, source="test", fence=Fence("job", 1))
    job.stream = CoordinatorStream(log, job.clock, source="test")
    job.ask(A, None, job.oldest())
    job.clock.advance(1)
    later = Startpoint(StartpointKind.UPCOMING, job.clock.wall_ms())
    log.meanwhile = [startpoint_entry(startpoint_key(A, None), later)]
    hand_over = StartpointHandOver(first, job.clock, job._applied)
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "_armed", failpoints._parse("change.startpoints-deleted:raise"))
        with pytest.raises(LogError):
            hand_over.pending(TASKS)
    second = CoordinatorStream(log, job.clock, source="test", fence=Fence("job", 2))
    job.hand_over = StartpointHandOver(second, job.clock, job._applied)
    return later


def test_a_startpoint_is_not_lost_when_the_coordinator_dies_over_the_one_before(
    job: Job, later: Startpoint
) -> None:
    assert job.hand_over.undelivered(TASKS) == {T0}
    assert job.pending() == {"Partition 0/local.in.0": "upcoming"}
    job.applied[T0] = {A: later.created_ms}
    assert job.pending() == {}, "once is enough"
    assert job.hand_over.undelivered(TASKS) == set()


def test_what_is_taken_back_after_the_coordinator_died_stays_so(job: Job, later: Startpoint) -> None:
    job.stream.append([startpoint_entry(startpoint_key(A, None), None)])
    assert job.pending() == {"Partition 0/local.in.0": "oldest"}


def test_what_is_asked_for_after_the_coordinator_died_counts_last(job: Job, later: Startpoint) -> None:
    job.clock.advance(1)
    job.ask(A, None, Startpoint(StartpointKind.OLDEST, job.clock.wall_ms()))
    assert job.pending() == {"Partition 0/local.in.0": "oldest"}
    assert job.pending() == {"Partition 0/local.in.0": "oldest"}


def test_a_startpoint_is_handed_over_until_its_task_says_that_it_applied_it(job: Job) -> None:
    job.ask(A, None, job.oldest())
    wanted = {"Partition 0/local.in.0": "oldest"}
    assert job.pending() == wanted
    assert job.stream.raw(NAMESPACE) == {}
    assert job.pending() == wanted, "the first container may have died before it applied anything"
    job.applied[T0] = {A: job.clock.wall_ms()}
    assert job.pending() == {}
    assert job.stream.raw(FAN_OUT_NAMESPACE) == {}


def test_the_same_position_asked_for_again_is_another_startpoint(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.pending()
    job.applied[T0] = {A: job.clock.wall_ms()}
    job.clock.advance(1)
    job.ask(A, None, job.oldest())
    assert job.pending() == {"Partition 0/local.in.0": "oldest"}


def test_a_later_fan_out_keeps_what_another_ssp_of_the_task_still_waits_for(job: Job) -> None:
    tasks = {T0: (A, B)}
    job.ask(A, None, job.oldest())
    job.pending(tasks)
    job.ask(B, T0, Startpoint(StartpointKind.UPCOMING, job.clock.wall_ms()))
    assert job.pending(tasks) == {
        "Partition 0/local.in.0": "oldest",
        "Partition 0/local.in.1": "upcoming",
    }


def test_a_startpoint_of_an_ssp_that_many_tasks_read_reaches_all_of_them(job: Job) -> None:
    tasks = {T0: (A,), T1: (A,)}
    job.ask(A, None, job.oldest())
    job.pending(tasks)
    job.applied[T0] = {A: job.clock.wall_ms()}
    assert job.pending(tasks) == {"Partition 1/local.in.0": "oldest"}


def test_after_twelve_hours_a_startpoint_counts_for_nothing_unless_it_was_fanned_out(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.pending()
    job.ask(B, None, job.oldest())
    job.clock.advance(EXPIRES_MS / 1000)
    assert job.pending() == {"Partition 0/local.in.0": "oldest"}


def test_what_a_task_does_not_read_any_more_is_dropped(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.pending()
    assert job.pending({T1: (B,)}) == {}
    assert job.pending() == {}, "the input coming back later does not bring an old wish back"


def test_records_that_are_no_startpoints_ask_for_nothing(job: Job) -> None:
    job.log.append(
        [Entry(encode_key(NAMESPACE, str(A)), b"{"), Entry(encode_key(FAN_OUT_NAMESPACE, T0), b"x")]
    )
    assert job.pending() == {}


def test_the_choice_of_state_comes_along_and_goes_with_its_startpoint(job: Job) -> None:
    request = StateRequest(StateChoice.RESTORE, job.clock.wall_ms(), {"counts": 7})
    job.ask(A, T0, job.oldest())
    job.stream.append([state_entry(job.stream, T0, request)])
    assert job.hand_over.pending(TASKS)[T0].state == request
    job.applied[T0] = {A: request.created_ms}
    job.pending()
    assert read_state_requests(job.stream) == {}


def test_samza_reads_the_fan_out_that_is_handed_over(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.pending()
    assert decoded_fan_outs(NamespacedStore(job.log, FAN_OUT_NAMESPACE).all()) == {T0: {A: job.oldest()}}


def test_a_coordinator_that_was_succeeded_hands_nothing_over(job: Job) -> None:
    job.ask(A, None, job.oldest())
    late = CoordinatorStream(job.log, job.clock, source="test", fence=Fence("job", 1))
    job.log.raise_fence(Fence("job", 2))
    with pytest.raises(Fenced):
        StartpointHandOver(late, job.clock, job._applied).pending(TASKS)


def test_a_task_gets_what_was_fanned_out_for_another_container(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.ask(B, None, job.oldest())
    assert job.hand_over.undelivered(TASKS) == {T0, T1}
    job.hand_over.pending(TASKS, to=[T0])
    assert job.hand_over.undelivered(TASKS) == {T1}
    job.hand_over.pending(TASKS, to=[T1])
    assert job.hand_over.undelivered(TASKS) == set(), "delivered, and it will apply it"
    job.clock.advance(1)
    job.ask(B, T1, job.oldest())
    assert job.hand_over.undelivered(TASKS) == {T1}


def test_a_startpoint_that_a_task_did_not_apply_is_sent_again_after_a_while(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.pending()
    assert job.hand_over.undelivered(TASKS) == set()
    job.clock.advance(DELIVERED_FOR_S)
    assert job.hand_over.undelivered(TASKS) == {T0}, "the answer may have been lost"
    job.applied[T0] = {A: job.clock.wall_ms() - round(DELIVERED_FOR_S * 1000)}
    assert job.hand_over.undelivered(TASKS) == set()


def test_a_coordinator_that_takes_over_sends_again_what_was_not_applied(job: Job) -> None:
    job.ask(A, None, job.oldest())
    job.ask(B, None, job.oldest())
    job.pending()
    job.applied[T0] = {A: job.clock.wall_ms()}
    successor = StartpointHandOver(job.stream, job.clock, job._applied)
    assert successor.undelivered(TASKS) == {T1}
