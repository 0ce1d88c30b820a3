"""How tasks become containers of processors that come and go: in equal shares, with as few moving as can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from grete.grouping.task_names import Assignment, check_there_are
from grete.model.ids import ContainerId, TaskName


def keep_in_place(
    tasks: Collection[TaskName], containers: Sequence[ContainerId], previous: Mapping[TaskName, ContainerId]
) -> Assignment:
    """Tasks by container, whose numbers differ by one at most; `previous` is where each task was last.

    With more containers than tasks, those that had tasks before get one each, then the others in their order.

    Raises:
        ConfigError: no tasks, or no containers.
    """
    check_there_are(tasks, containers)
    held = {id_: sorted(task for task in tasks if previous.get(task) == id_) for id_ in containers}
    chosen = sorted(held, key=lambda id_: not held[id_])[: len(tasks)]
    share, larger = divmod(len(tasks), len(chosen))
    by_size = sorted(chosen, key=lambda id_: -len(held[id_]))
    rooms = {id_: share + (place < larger) for place, id_ in enumerate(by_size)}
    groups: Assignment = {id_: held[id_][: rooms[id_]] for id_ in held if id_ in rooms}
    placed = {task for group in groups.values() for task in group}
    moving = iter(sorted(set(tasks) - placed))
    for id_, group in groups.items():
        group += [next(moving) for _ in range(rooms[id_] - len(group))]
    return groups
