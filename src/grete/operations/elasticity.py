"""Another number of tasks for each partition, at the offsets where the tasks before have ended.

Each bucket of keys is read at its own pace, so before the factor changes the tasks of a partition are run to the
highest offset of all. Then each record was processed once by the tasks before, or is by those after. Entries of
stores go to the task of their key, into changelog partitions that no task had before: the old ones stay as they are
until the configuration changes. So whatever ends this in between, it may be asked for again, or the job goes on as it
was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grete.application.expiry import unstamped
from grete.arrow import np
from grete.checkpoint.task_commit import STORES_MOVED, TaskCommit
from grete.clock import SystemClock
from grete.config.key_tables.job import ELASTICITY
from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.errors import JobError
from grete.failpoints import failpoint
from grete.grouping.ssp import ssp_grouper
from grete.keyed_log.base import Entry, Fence
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.history import History
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.model.job import TaskModel
from grete.model.messages import SET_CHANGELOG, VALUE_FIELDS
from grete.model.streams import StreamSpec
from grete.operations.job_handle import JobHandle, open_job
from grete.operations.meeting import Meeting, Offsets, Run, bring_together, meeting
from grete.operations.orphans import standing_still
from grete.operations.store_transfer import replace_content, store_content
from grete.systems.base import System
from grete.systems.columns import binary
from grete.tasks.key_buckets import KeyBuckets, key_serde_of
from grete.wire.java_hash import JavaHashMap

Row = tuple[bytes, bytes, int]
"""Key, value and time of an entry."""


def set_elasticity(job: JobId, factor: int, run: Run, *, stores_by_key: bool = False) -> Meeting:
    """Run the job to where its tasks stand at the same offsets, and let other tasks go on from there. Durable.

    `stores_by_key` says that entries of its stores are of the messages with the same keys. Those of one partition
    have to fit into memory.

    Raises:
        JobError: the job is running, or has no checkpoints, or does not come there; or it has stores, and these are
            not by key, or cannot be.
        ConfigError: the configuration would not be valid.
    """
    with open_job(job) as handle:
        after = _checked(handle, factor, stores_by_key=stores_by_key)
    bring_together([job], run)
    with open_job(job) as handle, standing_still(handle):
        found = meeting(handle)
        if found.behind:
            raise JobError(f"{job.shown}: tasks of a partition do not stand at the same offsets; ask again")
        change = _Change(handle, after, found.at)
        beside = change.move_stores() if handle.settings.is_stateful else []
        failpoint("elasticity.stores-moved")
        change.write_checkpoints()
        failpoint("elasticity.checkpoints-written")
        ConfigInForce(handle.stream).force(after.raw)
        reason = f"{factor} tasks for each partition"
        run_id = handle.stream.run_id() or ""
        handle.stream.change_config(
            {ELASTICITY.name: str(factor)}, run_id=run_id, reason=reason, beside=beside
        )
        History(handle.stream).append("elasticity", factor=str(factor))
    return found


def _checked(handle: JobHandle, factor: int, *, stores_by_key: bool) -> Settings:
    """The settings with the factor."""
    before = handle.settings
    after = {**before.raw, ELASTICITY.name: str(factor)}
    validate(after)
    if before.is_stateful:
        _check_stores(handle, stores_by_key=stores_by_key)
    return Settings.of(after)


def _check_stores(handle: JobHandle, *, stores_by_key: bool) -> None:
    before = handle.settings
    if not stores_by_key:
        raise JobError(
            f"{handle.job.shown} has the stores {', '.join(before.store_names)}, whose entries belong to the tasks "
            f"that there are. If their keys are those of the messages, say --stores-by-key. Else let a second "
            f"version read everything anew and take its place: grete job clone --job {handle.job.shown} --as NAME "
            f"--to-file FILE, {ELASTICITY.name} in FILE, then grete job promote"
        )
    by_message = {key_serde_of(ssp, before) for ssp in _shared_out(handle)}
    for store in before.store_names:
        own = before.serde(before.store(store).key_serde).implementation
        if by_message != {own}:
            raise JobError(
                f"the keys of the store {store} are of the serde {own!r}, and those of the messages of "
                f"{', '.join(map(repr, sorted(by_message)))}: whose they are cannot be known"
            )
    grown = [
        task for task, ssps in _inputs(handle).items() if len({s.system_stream for s in ssps}) < len(ssps)
    ]
    if grown:
        raise JobError(
            f"{grown[0]} reads several partitions of a stream that has grown: its keys stay together"
        )


def _inputs(handle: JobHandle) -> dict[TaskName, list[SystemStreamPartition]]:
    """What each task reads, without what all of them do."""
    shared = set(handle.settings.task.broadcast_inputs)
    return {task: [s for s in ssps if s not in shared] for task, ssps in handle.task_inputs().items()}


def _shared_out(handle: JobHandle) -> list[SystemStreamPartition]:
    return sorted({ssp for ssps in _inputs(handle).values() for ssp in ssps})


@dataclass(frozen=True, slots=True)
class _TaskOfKeys:
    """A task before or after, with what it reads and its bucket of the keys there."""

    name: TaskName
    partitions: tuple[SystemStreamPartition, ...]
    bucket: int
    changelog: int


class _Change:
    """From the tasks that there are to those of other settings; nothing runs meanwhile."""

    def __init__(self, handle: JobHandle, after: Settings, at: Offsets) -> None:
        self._handle = handle
        self._before, self._after = handle.settings, after
        self._at = at
        self._numbers = handle.changelog_mapping()
        ssps = JavaHashMap.of(_shared_out(handle))
        groups = ssp_grouper(after)(ssps, after)
        first = max(self._numbers.values(), default=-1) + 1
        self._tasks = [
            self._task(TaskModel(name, groups[name], first + place))
            for place, name in enumerate(sorted(groups))
        ]

    def _task(self, model: TaskModel) -> _TaskOfKeys:
        shared = set(self._before.task.broadcast_inputs)
        own = tuple(ssp for ssp in model.partitions if ssp not in shared)
        return _TaskOfKeys(model.name, own, model.key_bucket, model.changelog_partition)

    def _tasks_before(self) -> Iterator[_TaskOfKeys]:
        for name, ssps in self._handle.assigned_inputs().items():
            if name in self._numbers:
                yield self._task(TaskModel(name, ssps, self._numbers[name]))

    def write_checkpoints(self) -> None:
        """Let each task have processed what the tasks before have."""
        shared = self._before.task.broadcast_inputs
        token = STORES_MOVED if self._before.is_stateful else ""
        commits = {}
        for task in self._tasks:
            read = [ssp for ssp in (*task.partitions, *shared) if ssp in self._at]
            commits[task.name] = TaskCommit({ssp: str(self._at[ssp] - 1) for ssp in read}, token=token)
        self._handle.checkpoints.write(commits)

    def move_stores(self) -> list[Entry]:
        """Write the entries of all stores where the tasks after will have them; returns the records that say so."""
        stream = self._handle.stream
        fence = Fence(f"elasticity/{self._handle.job}", 1)
        width = max(task.changelog for task in self._tasks) + 1
        before = list(self._tasks_before())
        # not that of the configuration, which may have changed without them
        factor = max([1, *(task.bucket + 1 for task in before)])
        with self._handle.system(self._before.task.commit_system) as system:
            system.raise_fence([fence])
            for store in self._before.store_names:
                name = self._before.store(store).changelog_stream(self._handle.job)
                system.ensure_stream(StreamSpec(name, width, compacted=True))
                for partitions in sorted({task.partitions for task in self._tasks}):
                    own = (
                        self._own(system, store, one, factor)
                        for one in before
                        if one.partitions == partitions
                    )
                    rows = [row for of_task in own for row in of_task]
                    for task in self._tasks:
                        if task.partitions == partitions:
                            self._write(system, fence, store, task, rows)
                            failpoint("elasticity.store-written")
        field = VALUE_FIELDS[SET_CHANGELOG]
        return [stream.entry(SET_CHANGELOG, one.name, {field: str(one.changelog)}) for one in self._tasks]

    def _own(self, system: System, store: str, task: _TaskOfKeys, factor: int) -> list[Row]:
        """The entries of a task, without those of others' keys: an earlier factor may have left some."""
        with store_content(system, self._before.store(store), self._handle, task.changelog) as content:
            rows = list(content.scan(None, None))
        now_ms = SystemClock().wall_ms()
        if not self._before.store(store).is_expiring:
            made = [(key, value, now_ms) for key, value in rows]
        else:
            values, times_ms = unstamped([value for _, value in rows], now_ms)
            made = [
                (key, value or b"", at_ms)
                for (key, _), value, at_ms in zip(rows, values, times_ms, strict=True)
            ]
        return _of_bucket(self._before, factor, task, made)

    def _write(
        self, system: System, fence: Fence, store: str, task: _TaskOfKeys, rows: Sequence[Row]
    ) -> None:
        own = _of_bucket(self._after, self._after.job.elasticity_factor, task, rows)
        columns = [key for key, _, _ in own], [value for _, value, _ in own], [at_ms for _, _, at_ms in own]
        kept = self._before.store(store)
        replace_content(system, kept, self._handle, task.changelog, columns, [fence])


def _of_bucket(settings: Settings, factor: int, task: _TaskOfKeys, rows: Sequence[Row]) -> list[Row]:
    if factor == 1 or not rows:
        return list(rows)
    keys = binary([key for key, _, _ in rows])
    places = KeyBuckets(settings, factor).of_keys(task.partitions[0], keys)
    return [rows[place] for place in np.flatnonzero(places == task.bucket).tolist()]
