"""Snapshots of stores: what restores a store that is not on its machine, faster than its changelog."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.tasks.stores import snapshot_places as module
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.snapshot_places import FolderPlace
from grete.tasks.stores.snapshots import snapshot_copies, snapshots, take
from grete.tasks.stores.warm_copy import take_over
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest
from grete.testing.waiting import eventually, patient
from grete.wire.metric_values import TASK_GROUP

CHANGELOG = "changelog/0"
CHANGES = [(b"key%05d" % n, os.urandom(400)) for n in range(20_000)]
CONFIG = {
    "job.name": "job",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
    "job.snapshot.interval.ms": "60000",
}


def filled(path: Path, position: int, changelog: str = CHANGELOG) -> StoreFile:
    file = StoreFile(path, changelog)
    file.settle(position, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    return file


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreFile]:
    file = filled(tmp_path / "counts.db", 15_000)
    yield file
    file.close()


def restored(tmp_path: Path) -> tuple[int | None, dict[bytes, bytes]]:
    """What is there once a store that was lost has been taken over, and opened as a task does."""
    path = tmp_path / "elsewhere" / "counts.db"
    path.parent.mkdir()
    position = take_over(path, snapshot_copies(FolderPlace(tmp_path / "snapshots"), CHANGELOG))
    if position is None:
        return None, {}
    file = StoreFile(path, CHANGELOG)
    found = dict(file.scan(None, None))
    assert file.position == position
    file.close()
    return position, found


def test_a_lost_store_comes_back_from_its_snapshot(store: StoreFile, tmp_path: Path) -> None:
    written = take(store.path, FolderPlace(tmp_path / "snapshots"), CHANGELOG)
    assert written == store.path.stat().st_size or written > 15_000 * 400
    assert restored(tmp_path) == (15_000, dict(CHANGES[:15_000]))


def test_a_snapshot_costs_what_has_changed_and_two_are_kept(store: StoreFile, tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    whole = take(store.path, FolderPlace(folder), CHANGELOG)
    assert take(store.path, FolderPlace(folder), CHANGELOG) == 0, "nothing has changed"
    for position in (15_010, 15_020, 15_030):
        store.settle(position, "", lambda start, end: CHANGES[start:end], lambda packed: ())
        assert 0 < take(store.path, FolderPlace(folder), CHANGELOG) < whole / 2
    assert len(list((folder / "blocks").iterdir())) > 8, "who may be about to need one finds it for an hour"
    for block in (folder / "blocks").iterdir():
        os.utime(block, (1, 1))
    store.settle(15_040, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    take(store.path, FolderPlace(folder), CHANGELOG)
    kept = snapshots(FolderPlace(folder), CHANGELOG)
    assert [one.position for one in kept] == [15_040, 15_030]
    blocks = {path.name for path in (folder / "blocks").iterdir()}
    assert blocks == {name for one in kept for name in one.blocks}, "blocks of no snapshot are gone"


@pytest.mark.parametrize("harm", ["flipped", "cut off", "gone", "manifest", "empty manifest"])
def test_a_damaged_snapshot_is_never_used_and_the_one_before_is(
    harm: str, store: StoreFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "snapshots"
    take(store.path, FolderPlace(folder), CHANGELOG)
    store.settle(15_010, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    take(store.path, FolderPlace(folder), CHANGELOG)
    newest, before = snapshots(FolderPlace(folder), CHANGELOG)
    [only, *_] = [name for name in newest.blocks if name not in before.blocks]
    block, manifest = folder / "blocks" / only, folder / f"{15_010:020d}.json"
    match harm:
        case "flipped":
            block.write_bytes(block.read_bytes()[:-1] + b"\xff")
        case "cut off":
            block.write_bytes(block.read_bytes()[:1000])
        case "gone":
            block.unlink()
        case "manifest":
            manifest.write_bytes(manifest.read_bytes().replace(b"15010", b"15011"))
        case "empty manifest":
            manifest.write_bytes(b"")
    assert restored(tmp_path) == (15_000, dict(CHANGES[:15_000]))
    if harm in ("flipped", "cut off", "gone"):
        assert f"block {only}" in caplog.text


def test_a_damaged_block_that_does_not_change_is_written_again_once_it_was_noticed(
    store: StoreFile, tmp_path: Path
) -> None:
    """It is in every snapshot to come: without it no store would come back until its changelog's end."""
    folder = tmp_path / "snapshots"
    take(store.path, FolderPlace(folder), CHANGELOG)
    [first] = snapshots(FolderPlace(folder), CHANGELOG)
    store.settle(15_010, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    take(store.path, FolderPlace(folder), CHANGELOG)
    newest, _ = snapshots(FolderPlace(folder), CHANGELOG)
    [stays, *_] = [name for name in first.blocks if name in newest.blocks]
    (folder / "blocks" / stays).write_bytes(b"another")
    assert restored(tmp_path) == (None, {}), "neither has it"
    store.settle(15_020, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    take(store.path, FolderPlace(folder), CHANGELOG)
    shutil.rmtree(tmp_path / "elsewhere")
    assert restored(tmp_path) == (15_020, dict(CHANGES[:15_020]))


def test_a_snapshot_of_another_changelog_is_none(store: StoreFile, tmp_path: Path) -> None:
    take(store.path, FolderPlace(tmp_path / "snapshots"), CHANGELOG)
    assert snapshots(FolderPlace(tmp_path / "snapshots"), "changelog of a topic that was made again/0") == []
    other = filled(tmp_path / "other.db", 10, "another")
    take(other.path, FolderPlace(tmp_path / "snapshots"), "another")
    other.close()
    assert [one.changelog for one in snapshots(FolderPlace(tmp_path / "snapshots"), "another")] == ["another"]


KILLED = """
import sys
from pathlib import Path
from grete.tasks.stores.snapshot_places import FolderPlace
from grete.tasks.stores.snapshots import take
take(Path(sys.argv[1]), FolderPlace(Path(sys.argv[2])), sys.argv[3])
"""


@pytest.mark.parametrize("point", ["snapshot.blocks-written", "snapshot.written"])
def test_killed_amid_a_snapshot_the_one_before_or_the_new_one_is_there(
    point: str, store: StoreFile, tmp_path: Path
) -> None:
    folder = tmp_path / "snapshots"
    take(store.path, FolderPlace(folder), CHANGELOG)
    store.settle(16_000, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(store.path), str(folder), CHANGELOG],
        env={**os.environ, "GRETE_FAILPOINT": f"{point}:kill"},
        timeout=patient(60),
    )
    assert killed.returncode == -signal.SIGKILL
    position = 16_000 if point == "snapshot.written" else 15_000
    assert restored(tmp_path) == (position, dict(CHANGES[:position]))
    shutil.rmtree(tmp_path / "elsewhere")
    store.settle(17_000, "", lambda start, end: CHANGES[start:end], lambda packed: ())
    take(store.path, FolderPlace(folder), CHANGELOG)
    assert restored(tmp_path) == (17_000, dict(CHANGES[:17_000]))
    assert not list(tmp_path.glob("*.snapshot")), "no copy is left behind"


def test_a_disk_without_room_leaves_the_snapshot_before(
    store: StoreFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "snapshots"
    take(store.path, FolderPlace(folder), CHANGELOG)
    store.settle(16_000, "", lambda start, end: CHANGES[start:end], lambda packed: ())

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "replace_file", no_room)
        with pytest.raises(OSError, match="No space left"):
            take(store.path, FolderPlace(folder), CHANGELOG)
    assert restored(tmp_path) == (15_000, dict(CHANGES[:15_000]))


def test_two_that_take_snapshots_of_one_store_leave_one_that_is_whole(
    store: StoreFile, tmp_path: Path
) -> None:
    """As a container that was succeeded and does not know yet; each at its own offset."""
    folder = tmp_path / "snapshots"
    late = filled(tmp_path / "late.db", 14_000)

    def again(file: Path) -> None:
        for _ in range(5):
            take(file, FolderPlace(folder), CHANGELOG)

    threads = [threading.Thread(target=again, args=(path,)) for path in (late.path, store.path)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    late.close()
    take(store.path, FolderPlace(folder), CHANGELOG)
    assert restored(tmp_path) == (15_000, dict(CHANGES[:15_000]))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobUnderTest]:
    config = {**CONFIG, "job.snapshot.dir": str(tmp_path / "shared")}
    with JobUnderTest(CountingTask, config, directory=tmp_path / "job") as started:
        yield started


def count(job: JobUnderTest, *keys: str) -> None:
    for key in keys:
        job.send("local.in", 1, key=key)
    job.run()


def counted(job: JobUnderTest) -> bool:
    count(job, "look")
    return True


def snapshot_time_ms(job: JobUnderTest) -> int:
    return int(job.metrics("Partition 0")[TASK_GROUP]["snapshot-time-ms"])


def test_a_task_on_another_machine_goes_on_from_its_snapshot_and_reads_the_rest(
    job: JobUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    count(job, "a", "b", "a")
    assert snapshot_time_ms(job) == 0
    job.clock.advance(60)
    due_ms = job.clock.wall_ms()
    count(job, "c")
    manifests = list((tmp_path / "shared").rglob("*.json"))
    eventually(lambda: list((tmp_path / "shared").rglob("*.json")), f"there is a snapshot: {manifests}")
    eventually(lambda: counted(job) and snapshot_time_ms(job) == due_ms, "a metric says of when it is")
    count(job, "a", "d")
    job.restart(lose_stores=True)
    count(job, "a")
    assert snapshot_time_ms(job) > 0, "as the folder has it"
    assert "was taken over from the snapshot in" in caplog.text
    assert job.messages("local.out")[-1] == 4
    others = {key: n for key, n in job.store("counts", "Partition 0").items() if key != "look"}
    assert others == {"a": 4, "b": 1, "c": 1, "d": 1}


def test_a_snapshot_that_cannot_be_taken_costs_no_message(
    job: JobUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "shared").write_text("this is no folder")
    count(job, "a")
    job.clock.advance(60)
    count(job, "a", "a")
    eventually(lambda: "no snapshot of" in caplog.text, "it is said")
    assert job.messages("local.out")[-1] == 3
