"""The epochs of a container of one task, without Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import grete
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.control import Ended, Interruption
from grete.container.epochs import Epoch, run_epoch
from grete.container.local_shares import LocalEngine, LocalShares
from grete.container.process_state import EndedEpoch, ProcessState
from grete.container.run_lock import running_in
from grete.container.start import Started, prepare
from grete.errors import CheckpointsMoved, GreteError, MayStillCommit, ProcessingError, StreamUnreachable
from grete.model.fence import Fence
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.commit.base import BatchOutcome
from grete.testing.clock import ManualClock

CONFIG = {
    "task.class": f"{__name__}:Through",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
}
RECORDS = 10


class Through(grete.StreamTask):
    """Sends on what it gets; ends its container on `end`, commits on `commit`, and fails on `test.bad`."""

    def init(self, context: grete.TaskContext) -> None:
        self.bad = context.config.get("test.bad")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        if envelope.message == b"end":
            coordinator.shutdown(all_tasks=True)
        if envelope.message == b"commit":
            coordinator.commit()
        if envelope.message.decode() == self.bad:
            raise RuntimeError("bad")
        collector.send("local.out", envelope.message)


class Running:
    """A container of one task over `local.in`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = ManualClock()
        self.system = LocalSystem(home / "local", self.clock)
        self.control = threading.Event()
        self.on_batch: Callable[[], None] = lambda: None
        self.outcomes: list[tuple[int, BatchOutcome]] = []
        self.waited_s = 0.0
        for stream in ("in", "out"):
            self.system.ensure_stream(StreamSpec(stream, 1))

    def send(self, *values: bytes) -> None:
        self.system.append("in", [Message(None, value, 1, 0) for value in values])

    def started(self, *, until_drained: bool = False, **config: str) -> Started:
        task = AssignedTask(TaskName("Partition 0"), (SystemStreamPartition("local", "in", 0),), 0)
        settings = {**CONFIG, **{key.replace("_", "."): value for key, value in config.items()}}
        assignment = Assignment(
            JobId("job"), ContainerId("0"), 1, Settings.of(settings), (task,), until_drained=until_drained
        )
        return prepare(assignment, self.system, None, self.clock, self.home)

    def run(self, *, until_drained: bool = False, **config: str) -> Ended:
        started = self.started(until_drained=until_drained, **config)

        def on_batch(number: int, outcome: BatchOutcome) -> None:
            self.outcomes.append((number, outcome))
            self.on_batch()

        return run_epoch(
            started, LocalEngine(self.clock), self.control, self.clock, on_batch, None, ProcessState()
        )

    def outputs(self) -> list[bytes]:
        return [value for _, found in self.system.read("out", 0, 0) for value in found.column(1).to_pylist()]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    with closing(made.system):
        yield made


def test_it_runs_until_what_is_there_is_consumed_and_counts_on_in_the_next_start(running: Running) -> None:
    running.send(*[b"x"] * RECORDS)
    assert running.run(until_drained=True, task_max_records_per_batch="4") is Ended.DRAINED
    assert [(number, outcome.records) for number, outcome in running.outcomes] == [(0, 4), (1, 4), (2, 2)]
    running.send(b"y")
    assert running.run(until_drained=True) is Ended.DRAINED
    assert [number for number, _ in running.outcomes] == [0, 1, 2, 3]
    assert running.outputs() == [b"x"] * RECORDS + [b"y"]


def test_what_comes_later_is_not_read_when_it_is_to_end(running: Running) -> None:
    running.send(b"x")
    running.on_batch = lambda: running.send(b"later")
    assert running.run(until_drained=True) is Ended.DRAINED
    assert running.outputs() == [b"x"]


def test_an_interruption_ends_it_after_a_commit(running: Running) -> None:
    running.send(*[b"x"] * RECORDS)
    running.on_batch = running.control.set
    assert running.run(task_max_records_per_batch="4") is Ended.INTERRUPTED
    assert running.outputs() == [b"x"] * 4
    assert running.run() is Ended.INTERRUPTED
    assert len(running.outcomes) == 1, "it was asked before anything was read"


def test_a_task_may_end_its_container_and_is_given_nothing_after_that(running: Running) -> None:
    running.send(b"x", b"end", b"y")
    assert running.run() is Ended.SHUTDOWN
    assert running.outputs() == [b"x", b"end"]
    running.run(until_drained=True)
    assert running.outputs() == [b"x", b"end", b"y"]


def test_a_commit_that_a_task_asks_for_is_made_before_its_next_message(running: Running) -> None:
    running.send(b"1", b"commit", b"2", b"commit", b"3")
    assert running.run(until_drained=True) is Ended.DRAINED
    assert [outcome.records for _, outcome in running.outcomes] == [2, 2, 1]
    assert running.outputs() == [b"1", b"commit", b"2", b"commit", b"3"]


def test_commits_have_their_interval(running: Running) -> None:
    running.send(b"x")
    began: list[float] = []

    def again() -> None:
        began.append(running.clock.monotonic_s())
        running.send(b"x")
        if len(began) == 3:
            running.control.set()

    running.on_batch = again
    running.run(task_commit_ms="3000")
    assert began[0] == pytest.approx(0.0), "the first one waits for nothing"
    assert [late - early for early, late in pairwise(began)] == pytest.approx([3.0, 3.0], abs=0.1)


def test_without_an_interval_only_what_a_task_asks_for_is_committed(running: Running) -> None:
    running.send(b"1", b"2", b"commit", b"3")
    running.on_batch = lambda: threading.Timer(0.2, running.control.set).start()
    assert running.run(task_commit_ms="-1") is Ended.INTERRUPTED
    assert [outcome.records for _, outcome in running.outcomes] == [3, 1], "and what there is at the end"
    assert running.outputs() == [b"1", b"2", b"commit", b"3"]


def test_windows_come_at_their_time_though_nothing_else_does(running: Running) -> None:
    times: list[int] = []

    def note() -> None:
        times.append(running.clock.wall_ms())
        if len(times) == 5:
            running.control.set()

    running.on_batch = note
    running.run(task_window_ms="400")
    assert all(time_ms % 400 <= 20 for time_ms in times)
    assert [late - early for early, late in pairwise(times)] == pytest.approx([400] * 4, abs=20)


def test_work_that_failed_begins_again_from_what_is_committed(running: Running) -> None:
    running.send(*[b"x"] * 4, b"bad", b"y")
    with pytest.raises(ProcessingError):
        running.run(until_drained=True, task_max_records_per_batch="4", test_bad="bad")
    assert running.outputs() == [b"x"] * 4
    assert running.run(until_drained=True) is Ended.DRAINED
    assert running.outputs() == [b"x"] * 4 + [b"bad", b"y"]


SLOW_S = 0.005


class Slow(Through):
    """Takes its time for each message."""

    running: Running

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        if envelope.message == b"asked":
            self.running.control.set()
            self.asked_at_s = self.running.clock.monotonic_s()
        self.running.clock.advance(SLOW_S)
        super().process(envelope, collector, coordinator)

    def close(self) -> None:
        self.running.waited_s = self.running.clock.monotonic_s() - self.asked_at_s


def test_a_stop_waits_for_what_a_slow_task_takes_in_a_moment_and_not_for_its_backlog(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slow, "running", running, raising=False)
    running.send(*[b"x"] * 5_000, b"asked", *[b"x"] * 15_000)
    assert running.run(task_class=f"{__name__}:Slow") is Ended.INTERRUPTED
    assert 0 < running.waited_s < 0.5
    assert running.outputs()[5_000] == b"asked"


def test_what_a_killed_process_has_left_in_a_folder_goes_and_what_a_living_one_has_stays(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "jobs" / "job-1" / "container-0"
    with running_in(folder):
        (folder / "batches").mkdir()
        with running_in(folder):
            assert (folder / "batches").exists(), "of this process"
    held = f"from pathlib import Path; from grete.container.run_lock import *; r = running_in(Path({str(folder)!r}))"
    command = [sys.executable, "-c", f"{held}; r.__enter__(); print('held', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        (folder / "batches").mkdir()
        with running_in(folder):
            assert (folder / "batches").exists(), "of another process"
        process.kill()
    with running_in(folder):
        assert not (folder / "batches").exists()


def test_a_fence_is_raised_once_as_long_as_all_that_worked_behind_it_has_ended(
    running: Running,
) -> None:
    kept, fence = ProcessState(), Fence("container", 1)
    assert not kept.take(fence), "nothing is known of a fence that this process has not raised"
    epoch = Epoch(running.started(), running.clock)
    epoch.began()
    epoch.began()  # another attempt at the share
    epoch.ended()
    assert not epoch.has_ended_well
    epoch.ended()
    assert epoch.has_ended_well
    ended = EndedEpoch(Fence("epoch/container", 7), epoch.known)
    kept.keep(fence, ended)
    assert kept.take(Fence("container", 2)) is None
    kept.keep(fence, ended)
    assert kept.take(fence) == ended
    assert not kept.take(fence), "something may be at work behind it now"


def test_a_share_that_was_lost_commits_nothing_more_when_its_epoch_has_ended(running: Running) -> None:
    """Spark ends without an executor that stands still. Others may have the container's tasks when it goes on."""
    epoch = Epoch(running.started(), running.clock)
    running.send(b"x")
    epoch.began()
    with closing(LocalShares(epoch, running.clock)) as lost:
        assert epoch.end() is None
        with pytest.raises(CheckpointsMoved):
            lost.step()
        lost.kill()
    assert running.outputs() == []


def test_a_share_that_was_lost_is_refused_too_when_another_has_failed_and_the_container_is_to_end(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store does not answer either, that is what ends the container."""

    class Failing:
        slots_at_most = None

        def run(self, epoch: Epoch, control: Interruption) -> Ended:
            epoch.began()
            raise StreamUnreachable("no broker answers")

    started = running.started()

    def run() -> None:
        with pytest.raises(GreteError) as found:
            run_epoch(started, Failing(), running.control, running.clock, None, None, ProcessState())  # type: ignore[arg-type]
        ends.append(type(found.value))

    ends: list[type[GreteError]] = []
    begun: list[Fence] = []
    monkeypatch.setattr(running.system, "begin_epoch", begun.append)
    run()
    assert (ends, begun) == ([StreamUnreachable], []), "it goes on, and begins another epoch"
    running.control.set()
    run()
    assert (ends[1:], begun) == ([StreamUnreachable], [started.assignment.fence])

    def away(fence: Fence) -> Fence:
        raise StreamUnreachable("no broker answers")

    monkeypatch.setattr(running.system, "begin_epoch", away)
    run()
    assert ends[2:] == [MayStillCommit]


def test_an_epoch_whose_shares_have_all_ended_leaves_its_right_to_the_next(running: Running) -> None:
    epoch = Epoch(running.started(), running.clock)
    running.send(b"x")
    epoch.began()
    epoch.ended()
    with closing(LocalShares(epoch, running.clock)) as share:
        assert epoch.end() is not None
        share.step()
    assert running.outputs() == [b"x"]
