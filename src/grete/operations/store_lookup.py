"""What a store has of a key, read from the end of its changelog: whoever keeps it, and whether the job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grete.model.ids import TaskName
from grete.operations.job_handle import JobHandle
from grete.operations.stream_records import StreamRecord, first_offset, records_until
from grete.systems.base import System

_READ_AT_MOST = 20_000
"""Records of all partitions together for one answer, each partition's newest."""
_READ_AT_LEAST = 200


@dataclass(frozen=True, slots=True)
class LookUp:
    """The last record of the key in each partition that has one among those that were read.

    `tasks` are the partitions' tasks, `read` how many records were looked at of each partition, `older` from how far
    back to go on; 0 when all was read.
    """

    entries: Sequence[StreamRecord]
    tasks: Mapping[int, TaskName]
    read: int
    older: int


def look_up(handle: JobHandle, store: str, matches: Callable[[bytes | None], bool], back: int) -> LookUp:
    """Look at a stretch of each partition of the changelog that ends `back` records before its end.

    Only what is committed is read, as a task would restore it.

    Raises:
        GreteError: the changelog is not there, or its system does not answer.
    """
    stream = handle.settings.store(store).changelog_stream(handle.job)
    entries: list[StreamRecord] = []
    older = 0
    with handle.system(handle.settings.task.commit_system) as system:
        offsets = system.offsets(stream)
        read = max(_READ_AT_LEAST, _READ_AT_MOST // max(1, len(offsets)))
        for partition, known in sorted(offsets.items()):
            oldest, end = first_offset(known), int(known.upcoming) - back
            if end <= oldest:
                continue
            start = max(oldest, end - read)
            if start > oldest:
                older = back + read
            last = last_between(system, stream, partition, (start, end), matches)
            if last is not None:
                entries.append(last)
    tasks = {partition: task for task, partition in handle.changelog_mapping().items()}
    return LookUp(entries, tasks, read, older)


def last_between(
    system: System,
    stream: str,
    partition: int,
    offsets: tuple[int, int],
    matches: Callable[[bytes | None], bool],
) -> StreamRecord | None:
    """The last record whose key matches, from an offset on and before another."""
    last = None
    for record in records_until(system, stream, partition, *offsets):
        if matches(record.key):
            last = record
    return last
