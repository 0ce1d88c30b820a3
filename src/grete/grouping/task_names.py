"""How tasks become containers: by container count, by processor ids, or all into one.

A grouper is a pure function from tasks and containers to task names by container, in the order in which containers
and tasks are filled. It is given tasks by name, in lexicographic order: "Partition 10" before "Partition 2".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grete.config import aliases
from grete.config.key_tables.task import NAME_GROUPER
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import ContainerId, TaskName
from grete.registry import load_object
from grete.wire.java_hash import JavaHashMap

_log = logging.getLogger(__name__)
Assignment = dict[ContainerId, list[TaskName]]


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers that tasks are grouped into.

    `hosts` is where each of them was last, `previous` the container of each task in the last model; `is_sticky` asks
    to go by both. `own_id` is `processor.id`, of a job that is one processor. `in_samzas_order` sorts the tasks as
    Samza's calculator has them, which takes as long as all the rest; only Samza's own groupers depend on it.
    """

    hosts: Mapping[str, str]
    in_samzas_order: Callable[[], Sequence[TaskName]]
    previous: Mapping[TaskName, ContainerId] = field(default_factory=dict)
    is_sticky: bool = False
    own_id: str = "0"


TaskNameGrouper = Callable[[Sequence[TaskName], Containers], Assignment]
BUILT_IN = {
    "GroupByContainerCountFactory": "grete.grouping.task_names:by_container_count",
    "GroupByContainerIdsFactory": "grete.grouping.task_names:by_container_ids",
    "SingleContainerGrouperFactory": "grete.grouping.task_names:into_one",
}
"""A TaskNameGrouper; plug-ins are entry points of `grete.task_name_groupers`."""


def task_name_grouper(settings: Settings) -> TaskNameGrouper:
    """The configured grouper, by Samza's class name or its last part, or an installed plug-in.

    Raises:
        ConfigError: unknown; lists the known ones.
    """
    group, name = aliases.TASK_GROUPERS, settings.job.task_name_grouper
    grouper: TaskNameGrouper = load_object(
        group, aliases.canonical(group, name), built_in=BUILT_IN, used_by=NAME_GROUPER.name
    )
    return grouper


def by_container_count(tasks: Sequence[TaskName], containers: Containers) -> Assignment:
    """GroupByContainerCountFactory."""
    if containers.is_sticky:
        return balance(tasks, len(containers.hosts), containers.previous)
    return group_by_container_count(tasks, len(containers.hosts))


def by_container_ids(tasks: Sequence[TaskName], containers: Containers) -> Assignment:
    """GroupByContainerIdsFactory: round robin; with more containers than tasks, over the first by name.

    Raises:
        ConfigError: no processors or no tasks.
    """
    hosts, previous = containers.hosts, containers.previous
    if not containers.is_sticky:
        check_there_are(tasks, hosts)
        chosen = sorted(hosts)[: len(tasks)] if len(hosts) > len(tasks) else list(hosts)
        return {ContainerId(id_): list(tasks[i :: len(chosen)]) for i, id_ in enumerate(chosen)}
    known = {task: hosts[previous[task]] for task in tasks if previous.get(task) in hosts}
    return group_by_locality(containers.in_samzas_order(), hosts, known)


def into_one(tasks: Sequence[TaskName], containers: Containers) -> Assignment:
    """SingleContainerGrouperFactory: everything into one container."""
    return {ContainerId(containers.own_id): list(containers.in_samzas_order())}


def _check_count(tasks: Sequence[TaskName], count: int) -> None:
    if not tasks:
        raise ConfigError("No tasks found. Likely due to no input partitions. Can't run a job with no tasks.")
    if len(tasks) < count:
        raise ConfigError(
            f"Your container count ({count}) is larger than your task count ({len(tasks)}). "
            f"Can't have containers with nothing to do, so aborting."
        )


def group_by_container_count(tasks: Iterable[TaskName], count: int) -> Assignment:
    """GroupByContainerCount: round robin over the sorted names.

    Raises:
        ConfigError: no tasks, or more containers than tasks.
    """
    names = sorted(tasks)
    _check_count(names, count)
    return {ContainerId(str(i)): names[i::count] for i in range(count)}


def balance(tasks: Iterable[TaskName], count: int, previous: Mapping[TaskName, ContainerId]) -> Assignment:
    """GroupByContainerCount with a previous assignment: when the count changes, move as few tasks as possible.

    Raises:
        ConfigError: as above, or the previous assignment is of other tasks.
    """
    names = sorted(tasks)
    _check_count(names, count)
    groups = _previous_groups(names, previous)
    if groups is None or len(groups) == 1 or count == 1:
        return group_by_container_count(names, count)
    unknown = sorted(set(previous) - set(names))
    if unknown:
        raise ConfigError(f"the previous assignment names tasks that are gone: {', '.join(unknown[:5])}")
    if len(groups) != count:
        groups = _rebalance(groups, len(names), count)
    return {ContainerId(str(i)): group for i, group in enumerate(groups)}


def _previous_groups(
    names: Sequence[TaskName], previous: Mapping[TaskName, ContainerId]
) -> list[list[TaskName]] | None:
    """Task names by previous container; None when there is nothing to go by: none, another number of tasks, or
    container ids that are not 0 to n-1.
    """
    if not previous:
        return None
    if len(previous) != len(names):
        _log.warning("the number of tasks changed from %d to %d: not balancing", len(previous), len(names))
        return None
    ids = sorted(set(previous.values()))
    if set(ids) != {str(i) for i in range(len(ids))}:
        return None
    return [sorted(task for task in previous if previous[task] == str(i)) for i in range(len(ids))]


def _rebalance(groups: list[list[TaskName]], tasks: int, count: int) -> list[list[TaskName]]:
    expected = [tasks // count + (1 if i < tasks % count else 0) for i in range(count)]
    expected += [0] * (len(groups) - count)
    groups = [list(group) for group in groups] + [[] for _ in range(count - len(groups))]
    moving: list[TaskName] = []
    for group, size in zip(groups, expected, strict=True):
        while len(group) > size:
            moving.append(group.pop())
    for group, size in zip(groups, expected, strict=True):
        while len(group) < size:
            group.append(moving.pop(0))
    return groups[:count]


def check_there_are(tasks: Collection[TaskName], processors: Collection[str]) -> None:
    """That there is something to group.

    Raises:
        ConfigError: no tasks, or no processors.
    """
    if not tasks:
        raise ConfigError("cannot group an empty set of tasks")
    if not processors:
        raise ConfigError("Must have at least one container")


def group_by_locality(
    tasks: Sequence[TaskName], processors: Mapping[str, str], locality: Mapping[TaskName, str]
) -> Assignment:
    """GroupByContainerIds with host affinity: first to a processor on the task's last host, then wherever fewer than
    an equal share are, then round robin. `processors` and `locality` name hosts.

    Raises:
        ConfigError: no processors or no tasks.
    """
    check_there_are(tasks, processors)
    chosen = sorted(processors)
    if len(chosen) > len(tasks):
        chosen = list(JavaHashMap.of(chosen[: len(tasks)]))  # a TreeMap, but a HashMap once it was cut
    share = len(tasks) // len(chosen)
    groups: Assignment = {ContainerId(id_): [] for id_ in chosen}
    left = [
        task
        for task in tasks
        if not _place(groups, task, _on_host(chosen, processors, locality, task), share)
    ]
    left = [task for task in left if not _place(groups, task, sorted(chosen), share)]
    for position, task in enumerate(left):
        groups[ContainerId(chosen[position % len(chosen)])].append(task)
    return groups


def _on_host(
    chosen: Sequence[str], processors: Mapping[str, str], locality: Mapping[TaskName, str], task: TaskName
) -> list[str]:
    host = locality.get(task)
    return [] if host is None else [id_ for id_ in chosen if processors[id_] == host]


def _place(groups: Assignment, task: TaskName, candidates: Iterable[str], share: int) -> bool:
    """Give the task to the first candidate with fewer than its share; returns whether one had room."""
    for id_ in candidates:
        group = groups[ContainerId(id_)]
        if len(group) < share:
            group.append(task)
            return True
    return False
