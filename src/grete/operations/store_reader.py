"""Stores of a running job, asked again and again: what they have at the last commit of each task.

A task's commit says where its changelog stood, and the store's file of this machine, the task's own or a standby's,
has nearly all up to there (`tasks.stores.looking`). Without a file a key is looked for from the changelog's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import apsw

from grete.application.expiry import STAMP_BYTES, oldest_living
from grete.application.serdes import BUILT_IN
from grete.arrow import pc
from grete.checkpoint.latest_commits import LatestCommits
from grete.checkpoint.task_commit import TaskCommit
from grete.clock import Deadline, SystemClock
from grete.errors import ConfigError, CoordinatorUnavailable, WireError
from grete.model.ids import TaskName
from grete.operations.job_handle import JobHandle, no_such_task
from grete.operations.store_entries import Part, entry_of, last_of, plain, store_of, text_of_key
from grete.operations.stream_records import Decoders, first_offset, store_decoders
from grete.systems.base import Change, System
from grete.systems.columns import binary
from grete.systems.records import changes_of, unpack
from grete.tasks.spec import StoreSpec
from grete.tasks.stores.looking import KeyRange, NewerThanCommit, Rows, StoreLook, living_rows
from grete.tasks.stores.paths import store_identity, store_path
from grete.wire.coordinator_api import StoreAnswer, StoreRow

_AHEAD_S = 5.0
"""A file may be ahead of the commit that can be read: on Kafka while another share's transaction is open."""
_LOOKED_AT_MOST = 500_000
"""Records of a changelog that are read without a file: the coordinator has more to do."""
_EXACT = ("string", "integer", "long")
"""Serdes whose keys are the same bytes wherever they were written."""


class StoreReader:
    """Keeps open what the next question needs. Used by one thread at a time."""

    def __init__(self, handle: JobHandle, stack: ExitStack) -> None:
        """What is opened is closed with `stack`."""
        self.handle = handle
        self.system: System = stack.enter_context(handle.system(handle.settings.task.commit_system))
        self.commits = LatestCommits(self.system.checkpoint_log(handle.checkpoints.log_name))
        self._uids: dict[str, str] = {}
        self._files: dict[tuple[Path, str], StoreLook] = {}
        stack.callback(self._close_files)

    def read(self, store: str, *, key: str | None, prefix: str, task: str | None, limit: int) -> StoreAnswer:
        """See `JobStores.read`."""
        return StoreAnswer(store, list(_Question(self, store, key, prefix, limit).rows(task)))

    def uid(self, stream: str) -> str:
        """The id of a changelog; it changes only while the job stands."""
        if stream not in self._uids:
            self._uids[stream] = self.system.stream_uid(stream)
        return self._uids[stream]

    def file(self, path: Path, identity: str) -> StoreLook | None:
        """A store's file, if it is here."""
        place = path, identity
        known = self._files.get(place)
        if known is not None and known.is_current:
            return known
        if known is not None:
            del self._files[place]
            known.close()
        try:
            self._files[place] = StoreLook(path, identity)
        except (apsw.Error, FileNotFoundError):
            return None
        return self._files[place]

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()


class _Question:
    def __init__(self, opened: StoreReader, store: str, key: str | None, prefix: str, limit: int) -> None:
        self._opened = opened
        self._store, self._key, self._limit = store, key, limit
        # each look at the settings is one at the coordinator stream
        self._settings = settings = opened.handle.settings
        self._own = store_of(settings, store)
        self._decoders: Decoders = store_decoders(store, settings)
        self._wanted = _range(settings.serde(self._own.key_serde).implementation, key, prefix)
        self._stream = self._own.changelog_stream(opened.handle.job)

    def rows(self, task: str | None) -> Iterator[StoreRow]:
        """What each task has, or one of them."""
        partitions = self._opened.handle.changelogs()
        tasks = sorted(partitions)
        if task is not None and task not in tasks:
            raise no_such_task(self._opened.handle.job, task, tasks)
        left = self._limit
        self._opened.commits.refresh()
        for name in tasks if task is None else [TaskName(task)]:
            if left > 0:
                found = list(self._of_task(name, partitions[name], left))
                left -= len(found)
                yield from found

    def _of_task(self, task: TaskName, partition: int, limit: int) -> Iterator[StoreRow]:
        deadline = Deadline(SystemClock(), _AHEAD_S, pauses_s=(0.002, 0.05))
        while True:
            commit = self._opened.commits.of(task)
            if commit is None:
                return
            try:
                yield from self._at(task, partition, commit, limit)
                return
            except NewerThanCommit as newer:
                if not deadline.pause():
                    raise CoordinatorUnavailable(
                        f"the store of task {task} is at {newer}: ask again"
                    ) from newer
                self._opened.commits.refresh()

    def _at(self, task: TaskName, partition: int, commit: TaskCommit, limit: int) -> Iterator[StoreRow]:
        end = commit.store_positions.get(self._store)
        if end is None:  # the checkpoint is a tool's or Samza's: the state is all that is there
            end = int(self._opened.system.offsets(self._stream)[partition].upcoming)
        offsets = {str(ssp): offset for ssp, offset in sorted(commit.offsets.items())}
        wanted, oldest = self._wanted, 0
        rows = None if wanted is None else self._in_files(wanted, task, partition, commit.token, end, limit)
        if rows is None:  # asked for only now: on Kafka it is a way to the broker and back
            oldest = first_offset(self._opened.system.offsets(self._stream)[partition])
            if wanted is not None and end - oldest <= _LOOKED_AT_MOST:
                rows = self._in_the_changelog(wanted, partition, end, limit)
        if rows is not None:
            for key, value in rows.items():
                shown_key, shown = plain(self._decoders.key(key)), plain(self._decoders.value(value))
                yield StoreRow(task, shown_key, shown, offsets)
            return
        if self._key is None:
            raise CoordinatorUnavailable(
                f"the store {self._store} of task {task} has no file on this machine: `grete store scan` reads its "
                f"changelog"
            )
        first = max(oldest, end - _LOOKED_AT_MOST)
        part = Part(self._opened.system, task, self._stream, partition, oldest, end, self._kept_since_ms())
        found = last_of(part, first, lambda one: text_of_key(self._decoders.key(one)) == self._key)
        if found is not None and found.value is not None and found.timestamp_ms >= part.kept_since_ms:
            entry = entry_of(task, found, self._decoders)
            yield StoreRow(task, entry.key, entry.value, offsets)
        elif found is None and first > oldest:
            raise CoordinatorUnavailable(
                f"the store {self._store} of task {task} has no file on this machine, and the key {self._key!r} is "
                f"not among the last {_LOOKED_AT_MOST} records of its changelog: `grete store get` reads all of it"
            )

    def _in_files(
        self, wanted: KeyRange, task: TaskName, partition: int, token: str, end: int, limit: int
    ) -> Rows | None:
        has_times = self._own.ttl_ms is not None
        uid = self._opened.uid(self._stream)
        identity = store_identity(StoreSpec(self._store, self._stream, uid, self._own.ttl_ms), partition)

        def changes(start: int, end: int, copied_ms: int) -> Iterator[Change]:
            place = (self._stream, partition, start, end)
            return self._opened.system.changes(*place, copied_ms=copied_ms, has_times=has_times)

        unpacked = partial(_within, wanted, has_times)
        for path in self._paths(task):
            file = self._opened.file(path, identity)
            rows = None if file is None else file.rows(wanted, end, token, limit, changes, unpacked)
            if rows is not None:
                return self._living(rows) if has_times else rows
        return None

    def _in_the_changelog(self, wanted: KeyRange, partition: int, end: int, limit: int) -> Rows:
        """Of a task that has no file yet, or has it elsewhere."""
        has_times = self._own.ttl_ms is not None
        changes = self._opened.system.changes(self._stream, partition, 0, end, has_times=has_times)
        rows = living_rows(wanted.last_changes(changes), limit)
        return self._living(rows) if has_times else rows

    def _paths(self, task: TaskName) -> Iterator[Path]:
        """The task's own file, and standbys' copies."""
        handle, job = self._opened.handle, self._settings.job
        yield store_path(job.state_directory(handle.job, handle.home) / "stores", task, self._store)
        standbys = job.standby_directory(handle.job, handle.home)
        for replica in range(job.standby_replicas - 1):
            yield store_path(standbys / f"standby-{replica}", task, self._store)

    def _living(self, rows: Rows) -> Rows:
        bound = oldest_living(self._own.ttl_ms or 0, SystemClock().wall_ms())
        return {key: value[STAMP_BYTES:] for key, value in rows.items() if value >= bound}

    def _kept_since_ms(self) -> int:
        return 0 if self._own.ttl_ms is None else SystemClock().wall_ms() - self._own.ttl_ms


def _within(wanted: KeyRange, has_times: bool, packed: bytes) -> Iterator[Change]:
    """The changes of a batch within the range: there may be 100,000 of them, of which one is asked for."""
    batch = unpack(packed)
    bounds = binary([wanted.first, wanted.last])  # a scalar by itself would import pandas
    within = pc.greater_equal(batch.column(0), bounds[0])
    if wanted.last is not None:
        within = pc.and_(within, pc.less(batch.column(0), bounds[1]))
    return changes_of(batch.filter(within), has_times=has_times)


def _range(serde: str, key: str | None, prefix: str) -> KeyRange | None:
    """The bytes between which wanted keys are; None where only the keys themselves can say it."""
    if key is None:
        if prefix and serde != "string":
            raise WireError(
                f"keys of the serde {serde!r} have no order as text: leave the prefix out, or give a key"
            )
        first = prefix.encode("utf-8", "surrogateescape")
        return KeyRange(first, _behind(first))
    if serde not in _EXACT:
        return None
    try:
        exact = BUILT_IN[serde]().to_bytes(key if serde == "string" else int(key)) or b""
    except (ValueError, ConfigError) as error:
        raise WireError(f"the key {key!r} is none of the serde {serde!r}: {error}") from error
    return KeyRange(exact, exact + b"\0")


def _behind(prefix: bytes) -> bytes | None:
    """The first bytes that are behind all that begin so."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
