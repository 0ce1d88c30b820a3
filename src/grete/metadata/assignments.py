"""Task assignments and the changelog mapping (Samza's TaskAssignmentManager, ChangelogStreamManager and kin)."""

from __future__ import annotations

from collections.abc import Mapping

from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId, TaskName
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER, SET_TASK_MODE


class ChangelogMapping:
    """Which changelog partition each task owns, for ever: tasks that are gone keep theirs (S2-66)."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def read(self) -> dict[TaskName, int]:
        """The mapping; an entry whose partition is no number is left out."""
        values = self._stream.values(SET_CHANGELOG)
        return {TaskName(task): int(value) for task, value in values.items() if value.isdigit()}

    def write(self, mapping: Mapping[TaskName, int]) -> None:
        """Write what is new or different, atomically."""
        known = self.read()
        changed: dict[str, str | None] = {
            task: str(partition) for task, partition in mapping.items() if known.get(task) != partition
        }
        if changed:
            self._stream.put(SET_CHANGELOG, changed)


class TaskAssignments:
    """Which container runs each task, and in which mode."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def read(self) -> dict[TaskName, ContainerId]:
        """The assignment in force."""
        return {
            TaskName(task): ContainerId(container)
            for task, container in self._stream.values(SET_TASK_CONTAINER).items()
        }

    def write(self, assignment: Mapping[TaskName, ContainerId]) -> None:
        """Make it the assignment: tombstones for tasks that are gone and what changed, in one append."""
        known = self.read()
        changed: dict[str, str | None] = {
            task: container for task, container in assignment.items() if known.get(task) != container
        }
        changed |= dict.fromkeys(set(known) - set(assignment))
        if not changed:
            return
        entries = [
            self._stream.entry(SET_TASK_CONTAINER, task, None if c is None else {"containerId": c})
            for task, c in sorted(changed.items())
        ]
        entries += [
            self._stream.entry(SET_TASK_MODE, task, None if c is None else {"taskMode": "Active"})
            for task, c in sorted(changed.items())
        ]
        self._stream.append(entries)
