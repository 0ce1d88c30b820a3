"""Checkpoints as files, where Samza's FileSystemCheckpointManager keeps them (S2-112).

`<task.checkpoint.path>/<job name>-<task>-checkpoints` holds a CheckpointV1. The file beside it, `….grete`, names the
commit that it is a copy of, with a digest. Samza overwrote its file in place; here each is written under another
name, synced and renamed. A file per task and a sync per file: for jobs of few tasks.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from grete.checkpoint.store import CheckpointStore, StoreContext, StoredCheckpoint, digest
from grete.errors import ConfigError, LogError, StorageFull, WireError
from grete.failpoints import failpoint
from grete.model.ids import TaskName
from grete.private_files import replace_file
from grete.wire import checkpoint_json

_LONGEST_NAME = 255  # bytes of a file's name, whatever the file system


class FileSystemCheckpointStore(CheckpointStore):
    """The files of one job. The folder must exist: a wrong path must not look like a job that never ran."""

    def __init__(self, context: StoreContext) -> None:
        path = context.settings.task.checkpoint_path
        if not path:
            raise ConfigError("task.checkpoint.path is missing: checkpoints in files need a folder")
        self._root = Path(path)
        self._job = context.job
        if not self._root.is_dir():
            raise ConfigError(
                f"task.checkpoint.path={path!r}: there is no such folder; create it, or correct the path"
            )

    def read(self, tasks: Collection[TaskName]) -> dict[TaskName, StoredCheckpoint]:
        """See CheckpointStore."""
        with self._locked():
            found = {task: self._read(task) for task in sorted(tasks)}
        return {task: checkpoint for task, checkpoint in found.items() if checkpoint is not None}

    def _read(self, task: TaskName) -> StoredCheckpoint | None:
        path = self._path(task)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            read = checkpoint_json.read_v1(content)
        except WireError as error:
            return StoredCheckpoint(None, problem=f"{path}: {error}")
        proof = self._proof(path)
        is_copy = not read.marks and proof.get("digest") == digest(read.offsets)
        return StoredCheckpoint(read.offsets, proof.get("commit") if is_copy else None, marks=read.marks)

    def _proof(self, path: Path) -> dict[str, str]:
        """The proof beside the file; empty when grete did not write it.

        Raises:
            ConfigError: it is the file of another job.
        """
        try:
            proof = orjson.loads(_beside(path).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        if not isinstance(proof, dict) or not all(isinstance(value, str) for value in proof.values()):
            return {}
        if proof.get("job", self._job.id) != self._job.id:
            raise ConfigError(
                f"{path} belongs to job.id={proof['job']} of job {self._job.name!r}: the names of Samza's checkpoint "
                f"file names do not contain the job's id; give each a task.checkpoint.path of its own"
            )
        return proof

    def write(self, checkpoints: Mapping[TaskName, StoredCheckpoint]) -> None:
        """See CheckpointStore. There is no fence: what a fenced container still writes is an old copy, and
        `resolve` recognises it as one.
        """
        with self._locked():
            for task, checkpoint in sorted(checkpoints.items()):
                self._write(task, checkpoint)

    def _write(self, task: TaskName, checkpoint: StoredCheckpoint) -> None:
        assert checkpoint.offsets is not None, "damage is read, never written"
        path = self._path(task)
        _replace(path, checkpoint_json.encode_v1(checkpoint.offsets))
        failpoint("checkpoint.file-written")
        if checkpoint.commit is None:
            _beside(path).unlink(missing_ok=True)
        else:
            proof = {"commit": checkpoint.commit, "digest": digest(checkpoint.offsets), "job": self._job.id}
            _replace(_beside(path), orjson.dumps(proof))

    def places(self, tasks: Collection[TaskName]) -> list[str]:
        """See CheckpointStore. Files of another job of the same name are not this job's."""
        with self._locked():
            return [str(path) for path in self._own(tasks)]

    def delete(self, tasks: Collection[TaskName]) -> None:
        """See CheckpointStore."""
        with self._locked():
            for path in self._own(tasks):
                path.unlink(missing_ok=True)
                _beside(path).unlink(missing_ok=True)

    def _own(self, tasks: Collection[TaskName]) -> list[Path]:
        found = []
        for task in sorted(tasks):
            with suppress(ConfigError):
                path = self._path(task)
                self._proof(path)
                found.append(path)
        return [path for path in found if path.exists()]

    def _path(self, task: TaskName) -> Path:
        name = f"{self._job.name}-{task}-checkpoints"
        if "/" in name or "\0" in name or len(f"{name}.grete".encode()) > _LONGEST_NAME:
            raise ConfigError(
                f"the checkpoint of task {task!r} cannot be a file: its name has a slash or is too long; "
                f"set task.checkpoint.factory=grete.checkpoint.log"
            )
        return self._root / name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One reader or writer of the job at a time, so that a file and its proof are seen together."""
        try:
            descriptor = os.open(
                self._root / f".{self._job.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            kind = StorageFull if error.errno == errno.ENOSPC else LogError
            raise kind(
                f"the checkpoint files in {self._root} cannot be used: {error.strerror} "
                f"({error.filename or 'no file'}); check space, path and permissions"
            ) from error

    def close(self) -> None:
        """See CheckpointStore."""


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".grete")


def _replace(path: Path, content: bytes) -> None:
    replace_file(path, content, is_durable=True, mode=0o666)  # Samza's own jobs may read it as another user
