"""Standby replicas (Samza's StandbyTaskUtil and TaskNameGrouperProxy): containers that keep warm copies of stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grete.model.ids import ContainerId, TaskName
from grete.model.job import ContainerModel, TaskMode
from grete.wire.java_hash import JavaHashMap

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


def standby_containers(
    containers: Mapping[ContainerId, ContainerModel], replication_factor: int
) -> dict[ContainerId, ContainerModel]:
    """`replication_factor - 1` replicas of every container, each one's after the other's."""
    replicas = {}
    for container in containers.values():
        for replica in range(replication_factor - 1):
            id_ = standby_container(container.id, replica)
            tasks = {standby_task(task, replica): task for task in container.tasks}
            replicas[id_] = ContainerModel(
                id_,
                {
                    name: replace(container.tasks[tasks[name]], name=name, mode=TaskMode.STANDBY)
                    for name in JavaHashMap.of(tasks)
                },
            )
    return replicas
