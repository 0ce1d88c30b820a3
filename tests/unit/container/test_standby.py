"""Standby tasks: warm copies of stores, taken over when a store is lost, and never in the way."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.clock import SystemClock
from grete.config.rules.validate import check
from grete.container.control import Control, Ended
from grete.container.standby import StandbyRun
from grete.grouping.standby import replica_of, standby_task, task_of_standby
from grete.model.ids import JobId
from grete.model.job import TaskMode
from grete.systems.local.system import LocalSystem
from grete.tasks.stores.file import StoreFile
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest
from grete.testing.job_model import assignments_of

CONFIG = {
    "job.name": "job",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
    "job.standbytasks.replication.factor": "2",
}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobUnderTest]:
    with JobUnderTest(CountingTask, CONFIG, directory=tmp_path) as started:
        yield started


def count(job: JobUnderTest, *keys: str) -> None:
    for key in keys:
        job.send("local.in", 1, key=key)
    job.run()


def taken_over(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "grete.tasks.stores.warm_copy"]


def store_of(tmp_path: Path, directory: str) -> Path:
    [path] = (tmp_path / "jobs" / "job-1" / directory).rglob("counts.db")
    return path


def test_a_lost_store_is_taken_over_from_the_warm_copy_and_catches_up(
    job: JobUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    count(job, "a", "b", "a")
    job.follow()
    count(job, "a", "c")
    job.restart(lose_stores=True)
    count(job, "a")
    [message] = taken_over(caplog)
    assert message.endswith("at offset 2")
    assert job.messages("local.out")[-1] == 4
    assert job.store("counts", "Partition 0") == {"a": 4, "b": 1, "c": 1}


def test_a_damaged_store_is_taken_over_too(
    job: JobUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    count(job, "a", "b")
    job.follow()
    job.stop()
    store = store_of(tmp_path, "stores")
    for part in ("", "-wal", "-shm"):  # of a machine that lost its disk: this process has it open yet
        Path(f"{store}{part}").unlink()
    store.write_bytes(b"this is no store")
    job.start()
    count(job, "a")
    assert len(taken_over(caplog)) == 1
    assert job.messages("local.out")[-1] == 2


@pytest.mark.parametrize("harm", ["damaged", "truncated", "foreign", "empty", "absent"])
def test_a_copy_that_cannot_be_used_leaves_the_changelog(
    job: JobUnderTest, tmp_path: Path, harm: str
) -> None:
    count(job, *[f"key{i}" for i in range(60)])
    job.follow()
    copy = store_of(tmp_path, "standby-0")
    match harm:
        case "damaged":
            data = bytearray(copy.read_bytes())
            data[len(data) // 2 :: 7] = b"\x55" * len(data[len(data) // 2 :: 7])
            copy.write_bytes(bytes(data))
        case "truncated":
            copy.write_bytes(copy.read_bytes()[:5000])
        case "foreign":
            with apsw.Connection(str(copy)) as connection:
                connection.execute("UPDATE meta SET changelog = 'of another stream'")
        case "empty":
            copy.write_bytes(b"")
        case "absent":
            shutil.rmtree(tmp_path / "jobs" / "job-1" / "standby-0")
    job.restart(lose_stores=True)
    count(job, "key7")
    assert job.messages("local.out")[-1] == 2
    assert job.store("counts", "Partition 0") == {f"key{i}": 1 for i in range(60)} | {"key7": 2}


def test_of_several_copies_the_furthest_is_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    three = {**CONFIG, "job.standbytasks.replication.factor": "3"}
    with JobUnderTest(CountingTask, three, directory=tmp_path) as job:
        count(job, "a")
        job.follow()
        behind = tmp_path / "behind"
        shutil.copytree(tmp_path / "jobs" / "job-1" / "standby-0", behind)
        count(job, "b", "c")
        job.follow()
        shutil.rmtree(tmp_path / "jobs" / "job-1" / "standby-0")
        shutil.copytree(behind, tmp_path / "jobs" / "job-1" / "standby-0")
        job.restart(lose_stores=True)
        count(job, "a")
    [message] = taken_over(caplog)
    assert "standby-1" in message
    assert message.endswith("at offset 3")


def content(system: LocalSystem) -> tuple[object, ...]:
    """Everything that can be read: every stream's ends, the checkpoints, the fences."""
    log = system.checkpoint_log(checkpoint_log_name(JobId("job")))
    with system.file.reading() as connection:
        fences = connection.execute("SELECT * FROM fenced_scopes ORDER BY 1").fetchall()
        marks = connection.execute("SELECT count(*), max(rowid) FROM segments").fetchall()
    return {name: system.offsets(name) for name in system.streams()}, list(log.read()), fences, marks


def test_a_standby_writes_no_output_no_changelog_no_checkpoint_and_raises_no_fence(
    job: JobUnderTest, tmp_path: Path
) -> None:
    count(job, "a", "b")
    system = LocalSystem(tmp_path / "local", SystemClock())
    before = content(system)
    job.follow()
    assert content(system) == before
    system.close()
    count(job, "a")
    assert job.messages("local.out")[-1] == 2


def test_a_copy_can_live_on_another_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = {"job.standbytasks.state.dir": str(tmp_path / "other disk")}
    with JobUnderTest(CountingTask, {**CONFIG, **other}, directory=tmp_path / "home") as job:
        count(job, "a")
        job.follow()
        job.kill()
        shutil.rmtree(tmp_path / "home" / "jobs")
        job.start()
        count(job, "a")
        assert job.messages("local.out") == [1, 2]
    assert "other disk" in taken_over(caplog)[0]


def follower(job: JobUnderTest, tmp_path: Path) -> StandbyRun:
    [assignment] = assignments_of(job.model, 1, {}, TaskMode.STANDBY)
    return StandbyRun(assignment, tmp_path)


def test_a_standby_follows_until_it_is_reassigned(job: JobUnderTest, tmp_path: Path) -> None:
    count(job, "a")
    stop = threading.Event()
    stop.set()
    run = follower(job, tmp_path)
    assert run.execute(Control(stop)) is Ended.INTERRUPTED
    run.close()
    file = store_of(tmp_path, "standby-0")
    with apsw.Connection(str(file)) as connection:
        assert connection.execute("SELECT position FROM meta").fetchall() == [(1,)]


def test_what_was_written_before_a_standby_is_stopped_is_in_its_copy(
    job: JobUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers commit a last time and end, and then their standby containers are asked to."""
    count(job, "a")
    stop = threading.Event()
    run = follower(job, tmp_path)
    catch_up = run.catch_up

    def and_is_told_then() -> object:
        found = catch_up()
        if not stop.is_set():
            count(job, "b")
            stop.set()
        return found

    monkeypatch.setattr(run, "catch_up", and_is_told_then)
    assert run.execute(Control(stop)) is Ended.INTERRUPTED
    run.close()
    with apsw.Connection(str(store_of(tmp_path, "standby-0"))) as connection:
        assert connection.execute("SELECT position FROM meta").fetchall() == [(2,)]


def test_a_standby_that_cannot_write_tries_again_and_does_not_end(
    job: JobUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    count(job, "a")
    in_the_way = tmp_path / "jobs" / "job-1" / "standby-0"
    in_the_way.write_text("a file where the folder should be")
    run = follower(job, tmp_path)
    stop = threading.Event()
    stop.set()
    assert run.execute(Control(stop)) is Ended.INTERRUPTED
    assert "will try again" in caplog.text
    in_the_way.unlink()
    assert list(run.catch_up().values()) == [1]
    run.close()


def test_a_copy_that_is_taken_while_the_standby_writes_is_whole(job: JobUnderTest, tmp_path: Path) -> None:
    from grete.tasks.stores.warm_copy import standby_copies, take_over

    count(job, *[f"key{i}" for i in range(80)])
    job.follow()
    copy = store_of(tmp_path, "standby-0")
    [(changelog,)] = apsw.Connection(str(copy)).execute("SELECT changelog FROM meta").fetchall()
    writing = apsw.Connection(str(copy))
    writing.execute("BEGIN IMMEDIATE; DELETE FROM kv; UPDATE meta SET position = 1000000")
    assert take_over(tmp_path / "taken.db", standby_copies([copy], changelog)) == 80
    writing.execute("ROLLBACK")
    writing.close()
    file = StoreFile(tmp_path / "taken.db", changelog)
    assert (file.position, len(list(file.scan(None, None)))) == (80, 80)
    file.close()


@pytest.mark.parametrize("name", ["Partition 0", "SystemStreamPartition [local, my-in, 3]", "a-1", "-"])
def test_a_standby_task_knows_its_task_whatever_the_name_holds(name: str) -> None:
    assert task_of_standby(standby_task(name, 12)) == name
    assert replica_of("3-12") == 12


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"stores.counts.factory": None}, "no stores"),
        ({"task.class": None, "app.class": "a:B"}, "keeps its state in Spark"),
        ({"job.launcher": "thread"}, "processes of their own"),
    ],
)
def test_standby_tasks_that_could_keep_nothing_are_refused(
    change: dict[str, str | None], problem: str
) -> None:
    config = {**CONFIG, "task.class": "a:B", **change}
    errors = check({key: value for key, value in config.items() if value is not None}).errors
    assert any(problem in error for error in errors)


def test_the_log_has_where_a_store_came_from(job: JobUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    count(job, "a")
    job.follow()
    with caplog.at_level(logging.WARNING):
        job.restart(lose_stores=True)
        count(job, "a")
    assert "was taken over from the standby copy" in taken_over(caplog)[0]
