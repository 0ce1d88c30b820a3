"""Lag: how many messages of its inputs a job has not processed yet, by task, by SSP and in all. Pure.

Samza has it per consumer as `messages-behind-high-watermark`; here it comes from the checkpoints and from what the
systems say, so it is known of a job that does not run, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grete.checkpoint.offset_manager import added_partitions
from grete.config.choices import OffsetDefault
from grete.config.settings import Settings
from grete.config.settings.tasks import TaskSettings
from grete.errors import StreamNotFound
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.model.job import JobModel, TaskMode
from grete.systems.admin import PartitionOffsets, SystemAdmin
from grete.wire.container_protocol import document
from grete.wire.coordinator_api import Lag, PartitionLag

StreamOffsets = Mapping[SystemStream, Mapping[int, PartitionOffsets | None]]
"""Offsets of each stream's partitions, None for one that is unreachable."""
_UNREACHABLE = PartitionOffsets(None, None, "")


@dataclass(frozen=True, slots=True)
class SspLag:
    """One SSP in one task. `task` is None for a partition that no task reads yet.

    `checkpointed` is the last offset processed, None without a checkpoint. `records` counts what is left to process:
    from the checkpoint, else from where the task would start; None where the system's offsets are no numbers.
    `upcoming` is empty while the partition is unreachable.
    """

    ssp: SystemStreamPartition
    task: TaskName | None
    checkpointed: str | None
    upcoming: str
    records: int | None


@dataclass(frozen=True, slots=True)
class JobLag:
    """The lag of all tasks, in the order of task and SSP. `missing` are input streams that do not exist."""

    rows: tuple[SspLag, ...]
    missing: tuple[SystemStream, ...] = ()

    @property
    def unreachable(self) -> list[SystemStreamPartition]:
        """The partitions that are unreachable now, sorted."""
        return sorted({row.ssp for row in self.rows if not row.upcoming})

    @property
    def by_ssp(self) -> dict[SystemStreamPartition, int]:
        """The most that a task has left of each SSP: a broadcast SSP is read by all of them."""
        most: dict[SystemStreamPartition, int] = {}
        for row in self.rows:
            if row.records is not None:
                most[row.ssp] = max(most.get(row.ssp, 0), row.records)
        return most

    @property
    def by_task(self) -> dict[TaskName, int]:
        """Records left to process, by task."""
        left: dict[TaskName, int] = {}
        for row in self.rows:
            if row.task is not None and row.records is not None:
                left[row.task] = left.get(row.task, 0) + row.records
        return left

    @property
    def total(self) -> int | None:
        """Messages that are not processed by every task they are for; None when a stream or a count is unknown."""
        if self.missing or any(row.records is None for row in self.rows):
            return None
        return sum(self.by_ssp.values())

    def document(self) -> dict[str, Any]:
        """As JSON, see `Lag`."""
        partitions = [
            PartitionLag(
                row.task,
                row.ssp.system,
                row.ssp.stream,
                row.ssp.partition,
                row.checkpointed,
                row.upcoming,
                row.records,
            )
            for row in self.rows
        ]
        missing = [str(stream) for stream in self.missing]
        return document(Lag(self.total, dict(sorted(self.by_task.items())), partitions, missing))


def active_tasks(model: JobModel) -> dict[TaskName, tuple[SystemStreamPartition, ...]]:
    """The SSPs of each task that processes; standby tasks have no lag of their own."""
    return {task.name: task.partitions for task in model.tasks.values() if task.mode is TaskMode.ACTIVE}


def measure_lag(
    settings: Settings,
    tasks: Mapping[TaskName, Iterable[SystemStreamPartition]],
    checkpoints: Mapping[TaskName, Mapping[SystemStreamPartition, str]],
    offsets: StreamOffsets,
) -> JobLag:
    """Measure. A stream of the configuration that `offsets` lacks is missing.

    A partition that no task reads belongs to the tasks that have a checkpoint of it; without any (a job that never
    ran, a stream that has grown since) it counts with task None. A partition that was added to a stream which the job
    reads counts whole, as it will be read.
    """
    streams = settings.task.all_inputs
    defaults = {stream: settings.stream(stream).offset_default for stream in streams}
    readers = _by_ssp(tasks)
    processed = _by_ssp(checkpoints)
    added = {
        task: added_partitions(ssps, checkpoints.get(task, {}), settings) for task, ssps in tasks.items()
    }
    unread: list[TaskName | None] = [None]
    rows = []
    for ssp, held in _partitions(settings.task, offsets):
        for task in readers.get(ssp) or processed.get(ssp) or unread:
            is_added = _origin(ssp, held) in processed if task is None else ssp in added.get(task, ())
            default = OffsetDefault.OLDEST if is_added else defaults[ssp.system_stream]
            rows.append(_row(ssp, task, _checkpoint(checkpoints, task, ssp), held, default))
    ordered = sorted(rows, key=lambda row: (row.task is None, row.task or "", row.ssp))
    return JobLag(tuple(ordered), tuple(stream for stream in streams if stream not in offsets))


def _by_ssp(
    tasks: Mapping[TaskName, Iterable[SystemStreamPartition]],
) -> dict[SystemStreamPartition, list[TaskName]]:
    found: dict[SystemStreamPartition, list[TaskName]] = {}
    for task, ssps in tasks.items():
        for ssp in ssps:
            found.setdefault(ssp, []).append(task)
    return found


def _partitions(
    task: TaskSettings, offsets: StreamOffsets
) -> Iterable[tuple[SystemStreamPartition, PartitionOffsets]]:
    """Every partition of the inputs, and of a stream that is broadcast only those that are named."""
    inputs, broadcast = set(task.inputs), set(task.broadcast_inputs)
    for stream in task.all_inputs:
        for partition, held in sorted(offsets.get(stream, {}).items()):
            ssp = SystemStreamPartition(stream.system, stream.stream, partition)
            if stream in inputs or ssp in broadcast:
                yield ssp, _UNREACHABLE if held is None else held


def _origin(ssp: SystemStreamPartition, held: PartitionOffsets) -> SystemStreamPartition | None:
    """Where the keys of an added partition were before."""
    if held.origin is None:
        return None
    return SystemStreamPartition(ssp.system, ssp.stream, held.origin.partition)


def _checkpoint(
    checkpoints: Mapping[TaskName, Mapping[SystemStreamPartition, str]],
    task: TaskName | None,
    ssp: SystemStreamPartition,
) -> str | None:
    return None if task is None else checkpoints.get(task, {}).get(ssp)


def _row(
    ssp: SystemStreamPartition, task: TaskName | None, last: str | None, held: PartitionOffsets, default: str
) -> SspLag:
    upcoming = _number(held.upcoming)
    oldest = upcoming if held.oldest is None else _number(held.oldest)
    left = None
    if upcoming is not None and oldest is not None:
        start = _start(last, oldest, upcoming, default)
        left = None if start is None else max(0, upcoming - start)
    return SspLag(ssp, task, last, held.upcoming, left)


def _start(last: str | None, oldest: int, upcoming: int, default: str) -> int | None:
    """The next offset that the task reads."""
    if last is not None:
        processed = _number(last)
        return None if processed is None else max(oldest, processed + 1)
    return {"oldest": oldest, "newest": max(oldest, upcoming - 1)}.get(default, upcoming)


def _number(offset: str) -> int | None:
    """An offset that counts records; only the system can read any other."""
    digits = offset.removeprefix("-")
    return int(offset) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None


def read_offsets(
    streams: Sequence[SystemStream], systems: Mapping[str, SystemAdmin]
) -> dict[SystemStream, Mapping[int, PartitionOffsets | None]]:
    """Offsets of each stream's partitions; a stream that does not exist is left out."""
    found: dict[SystemStream, Mapping[int, PartitionOffsets | None]] = {}
    for stream in streams:
        try:
            found[stream] = systems[stream.system].reachable_offsets(stream.stream)
        except StreamNotFound:
            continue
    return found
