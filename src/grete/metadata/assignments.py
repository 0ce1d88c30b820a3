"""Task assignments and the changelog mapping (Samza's TaskAssignmentManager, ChangelogStreamManager and kin)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grete.errors import WireError
from grete.failpoints import failpoint
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER, SET_TASK_MODE, SET_TASK_PARTITION
from grete.model.streams import MOST_PARTITIONS
from grete.wire import java_json

_DIGITS = 18
Record = tuple[str, str, Mapping[str, str] | None]
"""(message type, key, values); None deletes."""


class ChangelogMapping:
    """Which changelog partition each task owns, for ever: tasks that are gone keep theirs (S2-66)."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def read(self) -> dict[TaskName, int]:
        """The mapping, without the entries that are `unreadable`."""
        values = self._stream.values(SET_CHANGELOG)
        return {TaskName(task): int(value) for task, value in values.items() if _is_partition(value)}

    def unreadable(self) -> dict[TaskName, str]:
        """Texts in place of a partition's number, and numbers that no stream has; they are quarantined."""
        values = self._stream.values(SET_CHANGELOG)
        found = {TaskName(task): value for task, value in values.items() if not _is_partition(value)}
        for task, value in found.items():
            self._stream.set_aside(
                SET_CHANGELOG, task, f"a partition is 0 to {MOST_PARTITIONS - 1}, got {value[:100]!r}"
            )
        return found

    def write(self, mapping: Mapping[TaskName, int]) -> None:
        """Write what is new or different, atomically."""
        known = self.read()
        changed: dict[str, str | None] = {
            task: str(partition) for task, partition in mapping.items() if known.get(task) != partition
        }
        if changed:
            self._stream.put(SET_CHANGELOG, changed)
            failpoint("model.mapping-written")


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) < MOST_PARTITIONS


class TaskAssignments:
    """Which container runs each task, in which mode, over which SSPs."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def read(self) -> dict[TaskName, ContainerId]:
        """The assignment in force."""
        found = self._stream.values(SET_TASK_CONTAINER)
        return {TaskName(task): ContainerId(container) for task, container in found.items()}

    def modes(self) -> dict[TaskName, TaskMode]:
        """Each task's mode; one that is neither Active nor Standby is left out."""
        known = {mode.value: mode for mode in TaskMode}
        found = self._stream.values(SET_TASK_MODE)
        return {TaskName(task): known[mode] for task, mode in found.items() if mode in known}

    def ssps(self) -> dict[TaskName, tuple[SystemStreamPartition, ...]]:
        """Each task's SSPs. The stream has them the other way round, because of Kafka's limit of 1 MB a record."""
        by_task: dict[TaskName, list[SystemStreamPartition]] = {}
        for key, names in self._stream.values(SET_TASK_PARTITION).items():
            for task, ssp in _tasks_of(key, names):
                by_task.setdefault(task, []).append(ssp)
        return {task: tuple(sorted(ssps)) for task, ssps in by_task.items()}

    def write(self, records: Iterable[Record]) -> None:
        """Append the records that change something, in one append; the last of two for one key counts."""
        latest = {(message_type, key): values for message_type, key, values in records}
        known = {
            (kind, key): message.values
            for kind in {kind for kind, _ in latest}
            for key, message in self._stream.messages(kind).items()
        }
        changed = [
            self._stream.entry(kind, key, values)
            for (kind, key), values in latest.items()
            if _plain(known.get((kind, key))) != _plain(values)
        ]
        if changed:
            self._stream.append(changed)


def _plain(values: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if values is None else dict(values)


def _tasks_of(key: str, names: str) -> list[tuple[TaskName, SystemStreamPartition]]:
    """(task, SSP) of one set-task-partition-assignment; nothing when it is not understood."""
    try:
        ssp, tasks = java_json.loads_quickly(key.encode()), java_json.loads_quickly(names.encode())
        found = SystemStreamPartition(
            ssp["system"], ssp["stream"], int(ssp["partition"]), int(ssp.get("keyBucket", -1))
        )
        return [(TaskName(task), found) for task in tasks]
    except (WireError, KeyError, TypeError, ValueError):
        return []  # a foreign record must not keep the job from starting; the assignment is recalculated
