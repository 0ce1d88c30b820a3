"""How tasks become containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grete.errors import ConfigError
from grete.model.ids import ContainerId, TaskName

KEY = "job.container.count"


def group_tasks(
    tasks: Sequence[TaskName], config: Mapping[str, str], previous: Mapping[TaskName, ContainerId]
) -> dict[ContainerId, list[TaskName]]:
    """GroupByContainerCount: round robin over the sorted names; unchanged when count and tasks are as before.

    Raises:
        ConfigError: the count is no positive number or larger than the number of tasks.
    """
    count = container_count(config)
    if count > len(tasks):
        raise ConfigError(
            f"{KEY}={count}, but the job has {len(tasks)} tasks: a container without a task has nothing to do"
        )
    known = {previous[task] for task in tasks if task in previous}
    if set(previous) == set(tasks) and known == {ContainerId(str(i)) for i in range(count)}:
        return {
            container: [task for task in sorted(tasks) if previous[task] == container]
            for container in sorted(known)
        }
    return {ContainerId(str(i)): sorted(tasks)[i::count] for i in range(count)}


def container_count(config: Mapping[str, str]) -> int:
    """`job.container.count`, 1 by default.

    Raises:
        ConfigError: not a positive number.
    """
    text = config.get(KEY, "1")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{KEY}={text!r} is not a positive number")
    return int(text)
