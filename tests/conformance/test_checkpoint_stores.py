"""The contract of checkpoint stores on every back end."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.coordinator_stream_store import CoordinatorStreamCheckpointStore
from grete.checkpoint.file_system_store import FileSystemCheckpointStore
from grete.checkpoint.store import CheckpointStore, Offsets, StoreContext, StoredCheckpoint
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import ConfigError, Fenced, LogError
from grete.keyed_log.base import Entry
from grete.metadata.access import open_coordinator_stream
from grete.model.fence import Fence
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_CHECKPOINT
from grete.testing.conformance.checkpoint_store import CheckpointStoreConformance
from grete.wire import checkpoint_json
from grete.wire.coordinator_message import encode_key

JOB = JobId("my_job", "1")


def context(home: Path, epoch: int | None = 1, job: JobId = JOB) -> StoreContext:
    fence = None if epoch is None else Fence("container/my_job-1/0", epoch)
    return StoreContext(job, Settings.of({"task.checkpoint.path": str(home)}), home, SystemClock(), fence)


class FileSystem:
    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self) -> CheckpointStore:
        return FileSystemCheckpointStore(context(self._home))

    def _path(self, task: TaskName) -> Path:
        return self._home / f"my_job-{task}-checkpoints"

    def write_as_samza(self, task: TaskName, offsets: Offsets) -> None:
        self._path(task).write_bytes(checkpoint_json.encode_v1(offsets))

    def damage(self, task: TaskName) -> None:
        content = self._path(task).read_bytes()
        self._path(task).write_bytes(content[: len(content) // 2])


class CoordinatorStreamBackEnd:
    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self) -> CheckpointStore:
        return CoordinatorStreamCheckpointStore(context(self._home))

    def write_as_samza(self, task: TaskName, offsets: Offsets) -> None:
        with open_coordinator_stream(Settings(), JOB, self._home) as stream:
            values = {str(ssp): offset for ssp, offset in offsets.items()}
            stream.append([stream.entry(SET_CHECKPOINT, task, values)])

    def damage(self, task: TaskName) -> None:
        with open_coordinator_stream(Settings(), JOB, self._home) as stream:
            value = b'{"values":{"local.in":"45"}}'
            stream.append([Entry(encode_key(SET_CHECKPOINT, task), value)])


class TestFileSystemCheckpointStore(CheckpointStoreConformance):
    @pytest.fixture
    def back_end(self, tmp_path: Path) -> FileSystem:
        return FileSystem(tmp_path)


class TestCoordinatorStreamCheckpointStore(CheckpointStoreConformance):
    @pytest.fixture
    def back_end(self, tmp_path: Path) -> CoordinatorStreamBackEnd:
        return CoordinatorStreamBackEnd(tmp_path)


TASK, SSP = TaskName("Partition 0"), SystemStreamPartition("local", "in", 0)


def test_a_fenced_container_writes_nothing_to_the_coordinator_stream(tmp_path: Path) -> None:
    old = CoordinatorStreamCheckpointStore(context(tmp_path, epoch=1))
    new = CoordinatorStreamCheckpointStore(context(tmp_path, epoch=2))
    with closing(old), closing(new):
        new.write({TASK: StoredCheckpoint({SSP: "5"}, "new")})
        with pytest.raises(Fenced):
            old.write({TASK: StoredCheckpoint({SSP: "4"}, "old")})
        assert new.read({TASK}) == {TASK: StoredCheckpoint({SSP: "5"}, "new")}


def test_set_checkpoint_records_look_as_samzas_do(tmp_path: Path) -> None:
    with closing(CoordinatorStreamCheckpointStore(context(tmp_path))) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
    with open_coordinator_stream(Settings(), JOB, tmp_path) as stream:
        message = stream.messages(SET_CHECKPOINT)[TASK]
        assert dict(message.values or {}) == {"local.in.0": "5"}
        assert message.origin is not None
        assert message.origin.source == "SamzaContainer"


def test_files_have_samzas_names_and_bytes(tmp_path: Path) -> None:
    with closing(FileSystemCheckpointStore(context(tmp_path))) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
    content = (tmp_path / "my_job-Partition 0-checkpoints").read_bytes()
    assert content == checkpoint_json.encode_v1({SSP: "5"})


@pytest.mark.parametrize(("path", "says"), [("", "is missing"), ("nowhere", "there is no such folder")])
def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, path: str, says: str) -> None:
    wrong = StoreContext(JOB, Settings.of({"task.checkpoint.path": path}), tmp_path, SystemClock())
    with pytest.raises(ConfigError, match=says):
        FileSystemCheckpointStore(wrong)


def test_two_ids_of_a_job_do_not_take_each_others_files(tmp_path: Path) -> None:
    with closing(FileSystemCheckpointStore(context(tmp_path))) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
    with (
        closing(FileSystemCheckpointStore(context(tmp_path, job=JobId("my_job", "2")))) as other,
        pytest.raises(ConfigError, match=r"belongs to job\.id=1"),
    ):
        other.read({TASK})


def test_a_task_whose_name_makes_no_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with (
        closing(FileSystemCheckpointStore(context(tmp_path))) as store,
        pytest.raises(ConfigError, match=r"grete\.checkpoint\.log"),
    ):
        store.write({TaskName("../../etc/passwd"): StoredCheckpoint({SSP: "5"})})


def test_a_folder_that_goes_away_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with closing(FileSystemCheckpointStore(context(folder))) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
        shutil.rmtree(folder)
        for use in (lambda: store.write({TASK: StoredCheckpoint({SSP: "6"})}), lambda: store.read({TASK})):
            with pytest.raises(LogError, match="check space, path and permissions"):
                use()


def no_room(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FileSystemCheckpointStore(context(tmp_path))) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", no_room)
            with pytest.raises(LogError, match="check space"):
                store.write({TASK: StoredCheckpoint({SSP: "6"}, "d")})
        assert not list(tmp_path.glob("*.tmp"))
        assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: "5"}, "c")}
