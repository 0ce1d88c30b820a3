"""A share as Spark runs it, without Spark: told its beginning by its container, reporting, and asked to end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import grete
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.epochs import Epoch
from grete.container.local_shares import LocalShares
from grete.container.share_server import Began, EndedWell, ShareServer
from grete.container.start import prepare
from grete.errors import ContainerGone, ProcessingError
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.runtime import TaskWorkers
from grete.tasks.share_loop import ShareLoop
from grete.tasks.share_task import ShareTask
from grete.tasks.shares import Committed
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.paths import file_name
from grete.testing.waiting import eventually

CONFIG = {
    "task.class": f"{__name__}:Noting",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
}
_seen: list[str] = []


class Noting(grete.StreamTask):
    """Notes what is done with it."""

    def init(self, context: grete.TaskContext) -> None:
        _seen.append(f"init {context.task_name}")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        if envelope.message == b"bad":
            raise RuntimeError("bad")
        collector.send("local.out", envelope.message)

    def close(self) -> None:
        _seen.append("close")


class Container:
    """One container of one task, whose share runs in a thread; of two tasks it has as many shares."""

    def __init__(self, home: Path, tasks: int = 1, **config: str) -> None:
        _seen.clear()
        self.system = LocalSystem(home / "local", SystemClock())
        for stream in ("in", "out", "job-1-counts-changelog"):
            self.system.ensure_stream(StreamSpec(stream, tasks))
        own = tuple(
            AssignedTask(TaskName(f"Partition {p}"), (SystemStreamPartition("local", "in", p),), p)
            for p in range(tasks)
        )
        assignment = Assignment(JobId("job"), ContainerId("0"), 1, Settings.of({**CONFIG, **config}), own)
        self.epoch = Epoch(prepare(assignment, self.system, None, SystemClock(), home), SystemClock())
        slots = self.epoch.tasks_of_slots
        self.server = ShareServer(self.epoch.start_of, "127.0.0.1", "127.0.0.1", slots=slots)
        self.pool = ThreadPoolExecutor(2)

    def begin(self) -> Future[bool]:
        return self.pool.submit(ShareTask(self.epoch.spec, self.server.address, self.server.key), 0)

    def send(self, *values: bytes) -> None:
        self.system.append("in", [Message(None, value, 1, 0) for value in values])

    def outputs(self) -> list[bytes]:
        return [value for _, found in self.system.read("out", 0, 0) for value in found.column(1).to_pylist()]


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    with made.pool, made.server:
        yield made
    made.system.close()


def test_it_works_until_it_is_asked_to_end_and_its_tasks_are_closed(container: Container) -> None:
    share = container.begin()
    for value in (b"1", b"2"):
        container.send(value)
        eventually(lambda wanted=value: wanted in container.outputs(), "an output")  # type: ignore[misc]
    assert not share.done()
    assert _seen == ["init Partition 0"], "one instance for as long as the epoch goes on"
    container.server.end_all()
    assert share.result(30) is False
    assert _seen == ["init Partition 0", "close"]
    events = [container.server.events.get(timeout=30)]
    while not isinstance(events[-1], EndedWell):
        events.append(container.server.events.get(timeout=30))
    assert sum(report.records for one in events if isinstance(one, Committed) for report in one.reports) == 2
    assert events[-1] == EndedWell(0, is_drained=False)


def test_however_many_tasks_a_process_has_each_is_opened_once(tmp_path: Path) -> None:
    """A thousand of two shares closed and opened their stores for each record: 20 s for one record of each."""
    made, tasks = Container(tmp_path, tasks=300, **{"stores.counts.factory": "sqlite"}), 300
    assert len(made.epoch.slots) > 1
    with closing(LocalShares(made.epoch, SystemClock(), commit_s=0.0)) as shares:
        for _ in range(3):
            made.system.append("in", [Message(None, b"1", 1, partition) for partition in range(tasks)])
            left = tasks
            while left:
                left -= sum(outcome.records for outcome in shares.step())
        assert sorted(_seen) == sorted(f"init Partition {partition}" for partition in range(tasks))


def test_stores_of_tasks_that_stay_are_open_when_the_next_assignment_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, opened = Container(tmp_path, **{"stores.counts.factory": "sqlite"}), []
    connect = StoreFile._connect
    monkeypatch.setattr(StoreFile, "_connect", lambda file: opened.append(file.path) or connect(file))
    for number in range(1, 4):
        with closing(LocalShares(made.epoch, SystemClock(), commit_s=0.0)) as shares:
            made.send(b"1")
            eventually(lambda: shares.step(0.01), "a commit")
        assert len(made.outputs()) == number
    assert len(opened) == 1


@pytest.mark.parametrize("of", ["tasks", "standby"])
def test_after_a_restart_a_share_begins_where_the_stores_of_its_tasks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Whatever number Spark gives it: this machine has what was kept of one task, or a standby's copy."""
    monkeypatch.setattr(ShareTask, "had", None)
    stores = {"stores.counts.factory": "sqlite", "job.standbytasks.replication.factor": "2"}
    made = Container(tmp_path, tasks=2, **stores)
    spec = made.epoch.spec
    [standby] = spec.standby_directories
    kept = Path(spec.store_directory if of == "tasks" else standby) / file_name("Partition 1")
    kept.mkdir(parents=True)
    with closing(made.system), made.pool, made.server:
        share = made.begin()
        assert made.server.events.get(timeout=30) == Began(1)
        made.server.end_all()
        assert share.result(30) is False


def test_a_profile_that_is_asked_for_comes_into_the_log_of_the_container(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="grete.container")
    made = Container(tmp_path, **{"task.profile.seconds": "1"})
    with closing(made.system), made.pool, made.server:
        made.send(b"1")
        share = made.begin()
        eventually(lambda: "profile of share 0: 1." in caplog.text, "the profile")
        assert "(process)" in caplog.text
        made.server.end_all()
        assert share.result(30) is False


def test_a_failure_says_which_record_and_no_task_is_closed(container: Container) -> None:
    container.send(b"1", b"bad")
    with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 1"):
        container.begin().result(30)
    assert _seen == ["init Partition 0"]
    assert container.outputs() == []


def test_an_attempt_that_spark_took_for_lost_ends_when_the_next_one_has_begun(container: Container) -> None:
    lost = container.begin()
    container.send(b"1")
    eventually(lambda: container.outputs() == [b"1"], "an output")
    second = container.begin()
    with pytest.raises(ContainerGone, match="another attempt at it has begun"):
        lost.result(30)  # if it is the only one that Spark knows of, Spark begins one again
    container.send(b"2")
    eventually(lambda: container.outputs() == [b"1", b"2"], "an output of the second attempt")
    container.server.end_all()
    assert second.result(30) is False


def test_the_next_attempt_begins_after_all_that_was_committed_whoever_reported_it_and_when(
    container: Container,
) -> None:
    """A report that was late, of an attempt that was taken for lost, and one that was never sent."""
    epoch = container.epoch
    container.send(b"1")
    first = ShareLoop(TaskWorkers(epoch.spec), epoch.start_of(0), SystemClock(), commit_s=0.0)
    late = first.step(10)
    assert late is not None
    container.send(b"2")
    assert first.step(10) is not None, "which is never reported"
    second = ShareLoop(TaskWorkers(epoch.spec), epoch.start_of(0), SystemClock(), commit_s=0.0)
    assert second.resumed is not None
    epoch.committed(second.resumed)
    container.send(b"3")
    made = second.step(10)
    assert made is not None
    epoch.committed(made)
    epoch.committed(late)
    third = ShareLoop(TaskWorkers(epoch.spec), epoch.start_of(0), SystemClock(), commit_s=0.0)
    assert third.next_offsets == {"local.in.0": 3}
    assert third.step() is None
    assert container.outputs() == [b"1", b"2", b"3"]
