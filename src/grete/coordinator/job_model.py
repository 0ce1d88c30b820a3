"""The job model, calculated: a pure function of configuration, partitions and what the stream remembers.

Deterministic: groups and tasks are sorted before anything is numbered, so the order in which inputs are listed or
hashed changes nothing (S0-13). A task's changelog partition is given once and never reused (S2-65, S2-66).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.errors import ConfigError
from grete.grouping.ssp import ssp_grouper
from grete.grouping.task_names import group_tasks
from grete.model.ids import ContainerId, SystemStream, SystemStreamPartition, TaskName
from grete.model.job import ContainerModel, JobModel, TaskModel


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the coordinator stream knows of earlier models."""

    assignment: Mapping[TaskName, ContainerId] = field(default_factory=dict)
    changelog: Mapping[TaskName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calculated:
    """The model and the changelog mapping to persist, which still holds the tasks that are gone."""

    model: JobModel
    changelog: Mapping[TaskName, int]


def input_streams(config: Mapping[str, str]) -> list[SystemStream]:
    """`task.inputs` and the streams of `task.broadcast.inputs`, without repetition, in order.

    Raises:
        ConfigError: an entry is not `system.stream`.
    """
    names = [name.strip() for name in config.get("task.inputs", "").split(",") if name.strip()]
    names += [
        n.strip().split("#")[0] for n in config.get("task.broadcast.inputs", "").split(",") if n.strip()
    ]
    return [SystemStream.parse(name) for name in dict.fromkeys(names)]


def changelog_mapping(tasks: list[TaskName], previous: Mapping[TaskName, int]) -> dict[TaskName, int]:
    """Give every new task the next free partition, in name order; old entries stay for ever."""
    mapping = dict(previous)
    following = max(previous.values(), default=-1) + 1
    for task in sorted(tasks):
        if task not in mapping:
            mapping[task] = following
            following += 1
    return mapping


def calculate(
    config: Mapping[str, str], partitions: Mapping[SystemStream, int], remembered: Remembered
) -> Calculated:
    """Calculate the model.

    Raises:
        ConfigError: no inputs, an unknown grouper, a container count below one.
    """
    ssps = [
        SystemStreamPartition(stream.system, stream.stream, partition)
        for stream, count in sorted(partitions.items())
        for partition in range(count)
    ]
    if not ssps:
        raise ConfigError("the job has no input: set task.inputs to system.stream[,system.stream]")
    groups = ssp_grouper(config)(ssps, config)
    if not groups:
        raise ConfigError("every input is a broadcast stream, so there is no task: add one to task.inputs")
    mapping = changelog_mapping(list(groups), remembered.changelog)
    assignment = group_tasks(sorted(groups), config, remembered.assignment)
    containers = {
        container: ContainerModel(
            container,
            {task: TaskModel(task, tuple(sorted(groups[task])), mapping[task]) for task in tasks},
        )
        for container, tasks in assignment.items()
    }
    return Calculated(JobModel(dict(config), containers), mapping)
