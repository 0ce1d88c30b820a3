"""The changelog mapping as Samza kept it before 0.10: one blob for all tasks (S2-106).

It was in the checkpoint log under the type `changelog-partition-mapping`, or in the file
`<job>-partition-mapping-changelog-partition-mapping` beside the checkpoint files: a JSON object of task -> partition.
Samza 0.10 moved it into the coordinator stream, a `set-changelog` record a task, and noted that in
`set-migration-info`. So does the first start of a job here: a task that got another changelog partition would take
another task's state for its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grete.config.settings.tasks import TaskSettings
from grete.errors import JobError, WireError
from grete.keyed_log.base import Record
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import JobId, TaskName
from grete.model.messages import SET_CHANGELOG, SET_MIGRATION_INFO
from grete.wire import jackson_bytes

_TYPE = "changelog-partition-mapping"
_KEY, _MIGRATION = "migration-info", "CheckpointMigration09to10"
_log = logging.getLogger(__name__)


def legacy_mapping(
    stream: CoordinatorStream, records: Iterable[Record], settings: TaskSettings, job: JobId
) -> dict[TaskName, int]:
    """The mapping to start from; empty when the job has one in its stream, or there is none of the old forms.

    `records` are the checkpoint log's; they are read only where the stream has no mapping.

    Raises:
        JobError: the old mapping cannot be read, or gives a partition to two tasks.
    """
    if stream.messages(SET_CHANGELOG):
        return {}
    found: dict[TaskName, int] = {}
    for record in records:
        if _is_mapping(record.key):
            found = (
                {}
                if record.value is None
                else _read(record.value, f"offset {record.offset} of the checkpoint log")
            )
    path = _path(settings.checkpoint_path, job)
    if not found and path is not None and path.exists():
        found = _read(path.read_bytes(), str(path))
    if found:
        _log.info("taking the changelog partitions of %d tasks from Samza's old form", len(found))
    return found


def note_migration(stream: CoordinatorStream) -> None:
    """Note, as Samza does, that the old form was taken over."""
    stream.append([stream.entry(SET_MIGRATION_INFO, _KEY, {_MIGRATION: "true"})])


def _path(folder: str | None, job: JobId) -> Path | None:
    return Path(folder) / f"{job.name}-partition-mapping-{_TYPE}" if folder else None


def _is_mapping(key: bytes) -> bool:
    if _TYPE.encode() not in key:
        return False  # a job has one of these and any number of the others
    try:
        document = jackson_bytes.loads(key)
    except WireError:
        return False
    return isinstance(document, dict) and document.get("type") == _TYPE


def _read(data: bytes, where: str) -> dict[TaskName, int]:
    try:
        document: Any = jackson_bytes.loads(data)
    except WireError as error:
        raise _unreadable(where, str(error)) from error
    if not isinstance(document, dict):
        raise _unreadable(where, "it is no JSON object")
    mapping = {}
    for task, partition in document.items():
        if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
            raise _unreadable(where, f"the partition of task {task!r} is {partition!r}")
        mapping[TaskName(task)] = partition
    if len(set(mapping.values())) != len(mapping):
        raise _unreadable(where, "two tasks have the same partition")
    return mapping


def _unreadable(where: str, why: str) -> JobError:
    return JobError(
        f"the changelog mapping in {where} cannot be used: {why}. Restore it from a copy, since with another tasks "
        f"would take each other's state; to start without the old state, give the job another job.id"
    )
