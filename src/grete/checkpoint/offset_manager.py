"""Where each task starts to read (Samza's OffsetManager), as a pure function.

Per task and SSP: the offset after the checkpoint, unless the stream is reset or has none; then the oldest of a
partition that was added to a stream the task reads, and the default of the stream, else of its system, else
`upcoming`, of any other (S2-87 to S2-90). Offsets are kept per task, so two tasks that read the
same broadcast SSP never share one (S2-95).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grete.checkpoint.task_commit import TaskCommit
from grete.config.choices import LostOffsets
from grete.config.key_tables.task import LOST_OFFSETS_POLICY
from grete.config.settings import Settings
from grete.config.settings.streams import StreamSettings
from grete.errors import ConfigError, OffsetOutOfRange, OffsetsRemoved, StreamError, StreamUnreachable
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.systems.admin import OffsetAdmin, PartitionOffsets

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets from `first` to before `end` that a task never processes, since retention has removed them."""

    task: TaskName
    ssp: SystemStreamPartition
    first: str
    end: str

    def __str__(self) -> str:
        return f"task {self.task} skips the offsets from {self.first} to before {self.end} of {self.ssp}"


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """The next offset to read, per task and SSP; and the smallest per SSP, where a shared reader begins.

    `skipped` is to be reported before anything is read.
    """

    by_task: Mapping[TaskName, Mapping[SystemStreamPartition, str]]
    by_ssp: Mapping[SystemStreamPartition, str]
    skipped: tuple[Skipped, ...] = ()


def starting_offsets(
    tasks: Mapping[TaskName, Sequence[SystemStreamPartition]],
    checkpoints: Mapping[TaskName, Mapping[SystemStreamPartition, str]],
    settings: Settings,
    admins: Mapping[str, OffsetAdmin],
) -> StartingOffsets:
    """Decide for every task and SSP. An unreachable partition goes on after its checkpoint, if it has one.

    Raises:
        ConfigError: a default offset that is none of oldest, newest, upcoming; a system without admin.
        StreamError: a stream or partition does not exist.
        OffsetOutOfRange: the checkpoint points at what retention has removed, or past the end; names the missing
            range. A stream with `samza.reset.offset` ignores its checkpoint, and what retention has removed
            is skipped where `task.lost-offsets.policy` says so.
        StreamUnreachable: a partition without checkpoint is unreachable.
    """
    known: dict[SystemStream, Mapping[int, PartitionOffsets | None]] = {}
    by_task: dict[TaskName, dict[SystemStreamPartition, str]] = {}
    skipped: list[Skipped] = []
    empty: dict[SystemStream, dict[int, str]] = {}
    for task, ssps in tasks.items():
        checkpoint = _still_inputs(task, checkpoints.get(task, {}), ssps)
        by_task[task] = {}
        added = added_partitions(ssps, checkpoint, settings)
        for ssp in ssps:
            offsets = _offsets_of(ssp, known, admins)
            stream = settings.stream(ssp.system_stream)
            is_reset = stream.is_reset
            last = None if is_reset else checkpoint.get(ssp)
            if last is not None:
                found = _after(task, ssp, last, offsets, admins[ssp.system], settings)
                by_task[task][ssp] = found.end if isinstance(found, Skipped) else found
                skipped += [found] if isinstance(found, Skipped) else []
            elif offsets is None:
                raise StreamUnreachable(
                    f"no broker answers for {ssp}, and task {task!r} has no checkpoint of it, so its starting offset "
                    f"is unknown; check that the brokers that hold it run"
                )
            elif ssp in added and not is_reset:
                by_task[task][ssp] = offsets.upcoming if offsets.oldest is None else offsets.oldest
            else:
                by_task[task][ssp] = default_start(offsets, stream)
                if offsets.oldest is None and stream.offset_default != "upcoming":
                    empty.setdefault(ssp.system_stream, {})[ssp.partition] = offsets.upcoming
    _warn_of_empty(empty, settings)
    return StartingOffsets(by_task, _smallest(by_task, admins), tuple(skipped))


def _still_inputs(
    task: TaskName, checkpoint: Mapping[SystemStreamPartition, str], ssps: Sequence[SystemStreamPartition]
) -> dict[SystemStreamPartition, str]:
    """The checkpoint without streams that are no input any more (S2-85: the original crashed on them)."""
    for ssp in sorted(set(checkpoint) - set(ssps)):
        _log.info("Ignoring offset for %s of task %s since the stream is not an input any more.", ssp, task)
    return {ssp: offset for ssp, offset in checkpoint.items() if ssp in ssps}


def _admin(system: str, admins: Mapping[str, OffsetAdmin]) -> OffsetAdmin:
    try:
        return admins[system]
    except KeyError:
        raise ConfigError(
            f"system {system!r} is not configured: set systems.{system}.samza.factory"
        ) from None


def _offsets_of(
    ssp: SystemStreamPartition,
    known: dict[SystemStream, Mapping[int, PartitionOffsets | None]],
    admins: Mapping[str, OffsetAdmin],
) -> PartitionOffsets | None:
    stream = ssp.system_stream
    if stream not in known:
        known[stream] = _admin(ssp.system, admins).reachable_offsets(stream.stream)
    if ssp.partition not in known[stream]:
        raise StreamError(f"{stream} has no partition {ssp.partition}")
    return known[stream][ssp.partition]


def added_partitions(
    ssps: Iterable[SystemStreamPartition],
    checkpoint: Mapping[SystemStreamPartition, str],
    settings: Settings,
) -> set[SystemStreamPartition]:
    """The SSPs of a task that it got when their streams grew: everything in them came while the job was reading.

    A task that has processed a lower partition of a stream reads a second one only since then, unless it is
    broadcast or the grouper gives it all partitions. Starting such an SSP at the default, upcoming, would leave out
    what came between the growth and the restart.
    """
    unknown = [ssp for ssp in ssps if ssp not in checkpoint]
    if not unknown or settings.job.reads_all_in_each_task:
        return set()
    lowest: dict[SystemStream, int] = {}
    for ssp in checkpoint:
        lowest[ssp.system_stream] = min(ssp.partition, lowest.get(ssp.system_stream, ssp.partition))
    new = {ssp for ssp in unknown if lowest.get(ssp.system_stream, ssp.partition) < ssp.partition}
    return new.difference(settings.task.broadcast_inputs) if new else new


def default_start(offsets: PartitionOffsets, stream: StreamSettings) -> str:
    """Where an SSP without checkpoint starts: where there is no such offset, since it is empty, at upcoming (S2-90).

    Raises:
        ConfigError: the default is none of oldest, newest, upcoming.
    """
    wanted = stream.offset_default
    offset = {"oldest": offsets.oldest, "newest": offsets.newest, "upcoming": offsets.upcoming}[wanted]
    return offsets.upcoming if offset is None else offset


def _warn_of_empty(found: Mapping[SystemStream, Mapping[int, str]], settings: Settings) -> None:
    """A line a stream, however many partitions of it are empty; with where the first of them starts."""
    for stream, starts in found.items():
        wanted, first = settings.stream(stream).offset_default, min(starts)
        more = f" and {len(starts) - 1} more partitions" if len(starts) > 1 else ""
        _log.warning(
            "%s.%d%s: no %s offset, since nothing is there; starting at upcoming, %s for the first",
            *(stream, first, more, wanted, starts[first]),
        )


def _after(
    task: TaskName,
    ssp: SystemStreamPartition,
    last: str,
    offsets: PartitionOffsets | None,
    admin: OffsetAdmin,
    settings: Settings,
) -> str | Skipped:
    next_offset = admin.offsets_after({ssp: last})[ssp]
    if offsets is None:
        return next_offset  # whether it is there shows when it is read
    reset = settings.stream(ssp.system_stream).key("samza.reset.offset")
    try:
        check_in_range(
            next_offset,
            offsets,
            admin,
            f"task {task!r} has processed {ssp} up to offset {last}",
            f"To go on without what is lost: grete checkpoint rewind --task {task!r} --ssp {ssp} --to oldest "
            f"--execute, or set {reset}=true for one run, or "
            f"{LOST_OFFSETS_POLICY.name}=skip for every time",
        )
    except OffsetsRemoved:
        if settings.task.lost_offsets is LostOffsets.STOP:
            raise
        return Skipped(task, ssp, next_offset, _oldest(offsets))
    return next_offset


def _oldest(offsets: PartitionOffsets) -> str:
    return offsets.upcoming if offsets.oldest is None else offsets.oldest


def check_in_range(
    next_offset: str, offsets: PartitionOffsets, admin: OffsetAdmin, what: str, way_out: str
) -> None:
    """Refuse an offset that the partition does not hold; the one after its last record it may be.

    Raises:
        OffsetOutOfRange: with the exact range that is missing; OffsetsRemoved when it was there.
    """
    oldest = _oldest(offsets)
    if admin.compare(next_offset, oldest) < 0:
        raise OffsetsRemoved(
            f"{what}, but the stream begins at {oldest}: the offsets from {next_offset} to before {oldest} are "
            f"gone. {way_out}"
        )
    if admin.compare(next_offset, offsets.upcoming) > 0:
        raise OffsetOutOfRange(
            f"{what}, but the stream ends before {offsets.upcoming}: the offsets from {offsets.upcoming} to before "
            f"{next_offset} are not there, as after a stream was deleted and recreated. {way_out}"
        )


def resumed(commits: Mapping[TaskName, TaskCommit], starting: StartingOffsets) -> dict[TaskName, TaskCommit]:
    """Each task's commit when it starts at `starting`: all before those offsets counts as processed.

    So a reset stream is read again although the checkpoint covers it, of two tasks that share a broadcast SSP the one
    that starts later does not see what the other one reads, and a task's next checkpoint holds all of its SSPs.
    """
    found = {}
    for task, offsets in starting.by_task.items():
        commit = commits.get(task, TaskCommit({}))
        before = {ssp: str(int(offset) - 1) for ssp, offset in offsets.items()}
        moved = any(commit.offsets.get(ssp, last) != last for ssp, last in before.items())
        found[task] = replace(commit, offsets=before, lineage="" if moved else commit.lineage)
    return found


def _smallest(
    by_task: Mapping[TaskName, Mapping[SystemStreamPartition, str]], admins: Mapping[str, OffsetAdmin]
) -> dict[SystemStreamPartition, str]:
    smallest: dict[SystemStreamPartition, str] = {}
    for offsets in by_task.values():
        for ssp, offset in offsets.items():
            known = smallest.get(ssp)
            if known is None or admins[ssp.system].compare(offset, known) < 0:
                smallest[ssp] = offset
    return smallest
