"""The job model: job -> containers -> tasks -> SSPs (Samza's JobModel, ContainerModel, TaskModel)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from grete.model.ids import ContainerId, SystemStreamPartition, TaskName


class TaskMode(StrEnum):
    """Whether a task processes (Active) or keeps a warm copy of the stores (Standby)."""

    ACTIVE = "Active"
    STANDBY = "Standby"


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A task's inputs and its changelog partition. Equality ignores nothing (S2-72)."""

    name: TaskName
    ssps: tuple[SystemStreamPartition, ...]
    changelog_partition: int
    mode: TaskMode = TaskMode.ACTIVE

    @property
    def partitions(self) -> tuple[SystemStreamPartition, ...]:
        """The SSPs as they are read and as checkpoints name them, without key buckets; sorted."""
        return tuple(sorted(ssp.whole for ssp in self.ssps))

    @property
    def key_bucket(self) -> int:
        """The bucket of an elastic job's task: it gets the records of these keys, and what is broadcast; else -1."""
        return max((ssp.key_bucket for ssp in self.ssps), default=-1)


@dataclass(frozen=True, slots=True)
class ContainerModel:
    """A container's tasks by name."""

    id: ContainerId
    tasks: Mapping[TaskName, TaskModel]


@dataclass(frozen=True, slots=True)
class JobModel:
    """The whole job: configuration and containers by id."""

    config: Mapping[str, str]
    containers: Mapping[ContainerId, ContainerModel]
    max_changelog_partitions: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.max_changelog_partitions < 0:
            partitions = [
                task.changelog_partition for c in self.containers.values() for task in c.tasks.values()
            ]
            object.__setattr__(self, "max_changelog_partitions", max(partitions, default=-1) + 1)

    @property
    def tasks(self) -> dict[TaskName, TaskModel]:
        """Every task of the job by name, sorted."""
        found = {
            name: task for container in self.containers.values() for name, task in container.tasks.items()
        }
        return dict(sorted(found.items()))
