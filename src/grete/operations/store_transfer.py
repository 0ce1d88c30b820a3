"""The content of a StreamTask's store as files, and files as its content: from one job to another.

A folder has `store.json` and for each task an Arrow file of keys, values and times, as the changelog has them.
What is exported is the state at the last commit. An import goes through the changelog of a job that does not run: it
is then the state that the job begins with, as everything in its changelogs is.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from grete.application.expiry import unstamped
from grete.arrow import pa
from grete.checkpoint.task_commit import Commits, TaskCommit
from grete.clock import SystemClock
from grete.config.settings.stores import StoreSettings
from grete.errors import ConfigError, JobError
from grete.failpoints import failpoint
from grete.keyed_log.base import Fence
from grete.model.ids import TaskName
from grete.operations.job_handle import JobHandle
from grete.operations.orphans import standing_still
from grete.operations.store_entries import store_of
from grete.private_files import private_directory, replace_file
from grete.suggestions import or_one_of
from grete.systems.base import System
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.records import pack
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.rewind import Changelog

_DESCRIPTION = "store.json"
_ROWS = 50_000
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp_ms", pa.int64())])
Rows = tuple[list[bytes], list[bytes], list[int]]
"""Keys, values and times of entries."""
_STOP = "stop it first: a task that runs has the store in its hands"


@dataclass(frozen=True, slots=True)
class ExportedTask:
    """A task's entries: `file` in the folder, whose SHA-256 is `digest`."""

    task: TaskName
    file: str
    entries: int
    digest: str


@dataclass(frozen=True, slots=True)
class Exported:
    """What a folder has. Serdes are by name, as the job's configuration names them."""

    job: str
    store: str
    key_serde: str | None
    msg_serde: str | None
    expires: bool
    tasks: tuple[ExportedTask, ...]


class ImportedTask(NamedTuple):
    """What an import writes to a task's store: entries, and deletions of what is there and was not exported."""

    task: TaskName
    entries: int
    deletions: int


def export_store(handle: JobHandle, store: str, folder: Path, at: Commits | None = None) -> Exported:
    """Write what the store has at the last commit of each task; the description comes last.

    With `at` it is what the store had at these commits, of the tasks that have one.

    Raises:
        ConfigError: there is no such store, or something is in the folder.
        JobError: what it had at such a commit is not known any more.
        GreteError: the changelog is not there, or its system does not answer.
        OSError: there is no room.
    """
    own = store_of(handle.settings, store)
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"--to {folder}: there is something in it already; name a folder of its own")
    private_directory(folder)
    now_ms = SystemClock().wall_ms()
    tasks = []
    with handle.system(handle.settings.task.commit_system) as system:
        for task, number in sorted(handle.changelogs().items()):
            if at is not None and task not in at:
                continue
            end = None if at is None else _position(at[task], store, task)
            with store_content(system, own, handle, number, end) as content:
                file = folder / f"partition-{number}.arrow"
                entries = _write(file, content, now_ms if own.ttl_ms is not None else None)
            tasks.append(ExportedTask(task, file.name, entries, _digest(file)))
            failpoint("transfer.exported")
    is_expiring = own.ttl_ms is not None
    found = Exported(handle.job.shown, store, own.key_serde, own.msg_serde, is_expiring, tuple(tasks))
    replace_file(folder / _DESCRIPTION, orjson.dumps(asdict(found)), is_durable=True)
    return found


def import_store(handle: JobHandle, store: str, folder: Path, *, execute: bool) -> list[ImportedTask]:
    """Let the store have exactly what was exported, of each task that was; others stay as they are.

    Each task's part is there whole or not at all. Killed in between, it can be done again.

    Raises:
        ConfigError: the folder is no export, is damaged, or of a store that does not fit this one.
        HeldByOther, JobError: the job runs, or a container of it does.
    """
    own, found = store_of(handle.settings, store), _described(folder)
    _check_fits(own, found, handle)
    numbers = handle.changelog_mapping()
    done = []
    stopped = standing_still(handle) if execute else handle.election.stopped(_STOP)
    with stopped, handle.system(handle.settings.task.commit_system) as system:
        fence = Fence(f"import/{handle.job}/{store}", 1)
        if execute:
            system.raise_fence([fence])
        for task in found.tasks:
            rows = _rows(folder / task.file, have_times=found.expires)
            place = system, own, handle, numbers[task.task]
            gone = replace_content(*place, rows, [fence] if execute else None)
            done.append(ImportedTask(task.task, len(rows[0]), gone))
            if execute:
                failpoint("transfer.imported")
    return done


def replace_content(
    system: System,
    own: StoreSettings,
    handle: JobHandle,
    number: int,
    rows: Rows,
    fences: Sequence[Fence] | None,
) -> int:
    """Let a task's store have exactly these entries, all at once or not at all, under the fences; without fences it
    is only looked. Returns how many others it has, which are deleted.
    """
    keys, values, times_ms = rows
    present = set(keys)
    with store_content(system, own, handle, number) as content:
        gone = [key for key, _ in content.scan(None, None) if key not in present]
    if fences is not None and (keys or gone):
        all_times = [*times_ms, *[SystemClock().wall_ms()] * len(gone)]
        data = pack([*keys, *gone], [*values, *[None] * len(gone)], all_times)
        stream = own.changelog_stream(handle.job)
        segment = SegmentWrite(stream, number, len(keys) + len(gone), data)
        system.commit(CommitGroup(fences, [segment], "", []))
    return len(gone)


@contextmanager
def store_content(
    system: System, own: StoreSettings, handle: JobHandle, number: int, end: int | None = None
) -> Iterator[StoreFile]:
    """The store of a task at its last commit, restored into a file of its own, which is removed.

    With `end` it is the state at that position of its changelog, while the job goes on.

    Raises:
        JobError: compaction has removed some of that state since.
    """
    stream = own.changelog_stream(handle.job)
    position = int(system.offsets(stream)[number].upcoming) if end is None else end
    with (
        tempfile.TemporaryDirectory(prefix="grete-store-") as name,
        closing(StoreFile(Path(name) / "store.db", stream, ttl_ms=own.ttl_ms)) as file,
    ):
        file.follow(system, stream, number, position)
        if end is not None:  # asked for afterwards: it goes on compacting meanwhile
            Changelog(system, stream, number, own.ttl_ms is not None).check_whole(end)
        yield file


def _position(commit: TaskCommit, store: str, task: TaskName) -> int:
    """Where its changelog stood."""
    try:
        return commit.store_positions[store]
    except KeyError:
        raise JobError(
            f"the last checkpoint of task {task} does not say where its store {store} stood, as one that a tool has "
            f"written: let the job commit once more, or stop it first"
        ) from None


def _write(path: Path, content: StoreFile, stamped_at_ms: int | None) -> int:
    """Write the rows; with `stamped_at_ms` values carry their times. Returns how many."""
    entries = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        rows = content.scan(None, None)
        while chunk := [row for row, _ in zip(rows, range(_ROWS), strict=False)]:
            keys, values = [key for key, _ in chunk], [value for _, value in chunk]
            times_ms: Sequence[int] = [0] * len(chunk)
            if stamped_at_ms is not None:
                bare, times_ms = unstamped(values, stamped_at_ms)
                values = [value or b"" for value in bare]
            writer.write_batch(pa.record_batch([keys, values, times_ms], schema=_SCHEMA))
            entries += len(chunk)
    return entries


def _rows(path: Path, *, have_times: bool) -> Rows:
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    times_ms = table.column("timestamp_ms").to_pylist()
    if not have_times:
        times_ms = [SystemClock().wall_ms()] * len(times_ms)
    return table.column("key").to_pylist(), table.column("value").to_pylist(), times_ms


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _described(folder: Path) -> Exported:
    """The description, whose files are as they were written."""
    try:
        document = orjson.loads((folder / _DESCRIPTION).read_bytes())
        tasks = tuple(ExportedTask(**task) for task in document.pop("tasks"))
        found = Exported(**document, tasks=tasks)
    except (OSError, orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"--from {folder}: it is no export of a store, or one that did not come to its end: {error}"
        ) from error
    for task in found.tasks:
        path = folder / Path(task.file).name
        if not path.is_file() or _digest(path) != task.digest:
            raise ConfigError(f"--from {folder}: {task.file} is missing or damaged; export it again")
    return found


def _check_fits(own: StoreSettings, found: Exported, handle: JobHandle) -> None:
    serdes = (own.key_serde, own.msg_serde)
    if serdes != (found.key_serde, found.msg_serde):
        raise ConfigError(
            f"the store's serdes are {serdes[0]} and {serdes[1]}, and those of the export {found.key_serde} and "
            f"{found.msg_serde}: its bytes would be read as something else"
        )
    if found.expires != (own.ttl_ms is not None):
        raise ConfigError("entries of one of the two stores expire, and those of the other do not")
    known = handle.changelog_mapping()
    for task in found.tasks:
        if task.task not in known:
            meant = or_one_of(task.task, sorted(known))
            raise ConfigError(
                f"the job has no task {task.task!r}{meant}: keys lie in the partitions of the input, so both jobs "
                "need inputs of as many partitions. A job that has never run has no tasks yet: run it once"
            )
