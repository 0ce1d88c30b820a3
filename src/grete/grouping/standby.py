"""Standby replicas (Samza's StandbyTaskUtil and TaskNameGrouperProxy): containers that keep warm copies of stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grete.model.ids import ContainerId, TaskName
from grete.model.job import ContainerModel, TaskMode, TaskModel

_SEPARATOR = "-"


def is_standby_container(container: str) -> bool:
    """Standby containers are named `<active>-<replica>`."""
    return _SEPARATOR in container


def active_container(container: str) -> ContainerId:
    """The active container of a standby one."""
    return ContainerId(container.split(_SEPARATOR)[0])


def standby_container(container: str, replica: int) -> ContainerId:
    """The name of a container's replica."""
    return ContainerId(f"{container}{_SEPARATOR}{replica}")


def standby_task(task: str, replica: int) -> TaskName:
    """The name of a task's replica."""
    return TaskName(f"Standby{_SEPARATOR}{task}{_SEPARATOR}{replica}")


def active_task(standby: str) -> TaskName:
    """The active task of a replica, as the original reads it: its name may not contain the separator."""
    return TaskName(standby.split(_SEPARATOR)[1])


def replica_of(container: str) -> int:
    """The number of a standby container's replica.

    Raises:
        ValueError: it is no standby container.
    """
    return int(container.rpartition(_SEPARATOR)[2])


def task_of_standby(standby: str) -> TaskName:
    """The active task of a replica, whatever its name holds: `Standby-<task>-<replica>`."""
    return TaskName(standby.removeprefix(f"Standby{_SEPARATOR}").rpartition(_SEPARATOR)[0])


def with_standby(
    containers: Mapping[ContainerId, ContainerModel], replication_factor: int
) -> dict[ContainerId, ContainerModel]:
    """Every container and `replication_factor - 1` replicas of it."""
    every = dict(containers)
    for container in containers.values():
        for replica in range(replication_factor - 1):
            id_ = standby_container(container.id, replica)
            every[id_] = ContainerModel(id_, {t.name: t for t in _standby_tasks(container, replica)})
    return every


def _standby_tasks(container: ContainerModel, replica: int) -> list[TaskModel]:
    return [
        replace(task, name=standby_task(task.name, replica), mode=TaskMode.STANDBY)
        for task in container.tasks.values()
    ]
