"""A task for each stream, and containers that are filled one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grete.config.settings import Settings
from grete.grouping.ssp import Groups
from grete.grouping.task_names import Assignment, Containers
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName


def by_stream(ssps: Iterable[SystemStreamPartition], settings: Settings) -> Groups:
    shared = settings.task.broadcast_inputs
    groups: dict[TaskName, list[SystemStreamPartition]] = {}
    for ssp in sorted(set(ssps) - set(shared)):
        groups.setdefault(TaskName(str(ssp.system_stream)), []).append(ssp)
    return {task: (*own, *shared) for task, own in groups.items()}


def in_blocks(tasks: Sequence[TaskName], containers: Containers) -> Assignment:
    each, more = divmod(len(tasks), len(containers.hosts))
    left = iter(tasks)
    return {
        ContainerId(id_): [next(left) for _ in range(each + (number < more))]
        for number, id_ in enumerate(containers.hosts)
    }
