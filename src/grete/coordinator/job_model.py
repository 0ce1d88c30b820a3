"""The job model, calculated: a pure function of configuration, partitions and what the stream remembers.

Samza's JobModelCalculator and JobModelHelper. Where the original iterates over a set whose order differs from JVM to
JVM, ours is always that of one of them (`java_order`), so the same inputs always give the same model (S0-13). A
task's changelog partition is given once and never reused (S2-65, S2-66).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grete.config.key_tables.job import PROCESSOR_LIST
from grete.config.settings import Settings
from grete.coordinator.java_order import container_order, input_order, task_order
from grete.errors import ConfigError
from grete.grouping.expansion import keep_keys_with_their_state
from grete.grouping.processors import keep_in_place
from grete.grouping.ssp import Groups, ssp_grouper
from grete.grouping.standby import standby_containers
from grete.grouping.task_names import Assignment, Containers, task_name_grouper
from grete.model.ids import ContainerId, SystemStream, SystemStreamPartition, TaskName
from grete.model.job import ContainerModel, JobModel, TaskMode, TaskModel
from grete.wire.java_hash import JavaHashMap

ANY_HOST = "ANY_HOST"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The coordinator stream's memory of earlier models."""

    assignment: Mapping[TaskName, ContainerId] = field(default_factory=dict)
    changelog: Mapping[TaskName, int] = field(default_factory=dict)
    ssps: Mapping[TaskName, tuple[SystemStreamPartition, ...]] = field(default_factory=dict)
    modes: Mapping[TaskName, TaskMode] = field(default_factory=dict)
    hosts: Mapping[ContainerId, str] = field(default_factory=dict)

    @property
    def active(self) -> dict[TaskName, ContainerId]:
        """The assignment of active tasks."""
        return {t: c for t, c in self.assignment.items() if self.modes.get(t) is not TaskMode.STANDBY}

    @property
    def active_ssps(self) -> dict[TaskName, tuple[SystemStreamPartition, ...]]:
        """The SSPs of active tasks."""
        return {t: s for t, s in self.ssps.items() if self.modes.get(t) is not TaskMode.STANDBY}


@dataclass(frozen=True, slots=True)
class Calculated:
    """The model and the changelog mapping to persist, which still holds the tasks that are gone."""

    model: JobModel
    changelog: Mapping[TaskName, int]


def changelog_mapping(tasks: Iterable[TaskName], previous: Mapping[TaskName, int]) -> dict[TaskName, int]:
    """Give every new task the next free partition, in name order; old entries stay for ever."""
    mapping = dict(previous)
    following = max(previous.values(), default=-1) + 1
    for task in sorted(tasks):
        if task not in mapping:
            mapping[task] = following
            following += 1
    return mapping


def calculate(
    settings: Settings, partitions: Mapping[SystemStream, int], remembered: Remembered
) -> Calculated:
    """Calculate the model. Of `partitions`, the count of each stream, those of `task.inputs` are grouped.

    Raises:
        ConfigError: no inputs, an unknown grouper, a container count below one or above the number of tasks, or
            partitions that a stateful job cannot follow.
    """
    groups = _groups(settings, partitions, remembered)
    mapping = changelog_mapping(groups, remembered.changelog)
    models = {task: TaskModel(task, groups[task], mapping[task]) for task in sorted(groups)}
    containers = {
        id_: ContainerModel(id_, {task: models[task] for task in JavaHashMap.of(tasks)})
        for id_, tasks in _containers(settings, models, remembered).items()
    }
    standby = standby_containers(containers, settings.job.standby_replicas)
    every = {**containers, **standby}
    ordered = {id_: every[id_] for id_ in container_order(every, list(standby))}
    model = JobModel(dict(settings.raw), ordered)
    copies = {name: t.changelog_partition for one in standby.values() for name, t in one.tasks.items()}
    return Calculated(model, {**mapping, **copies})


def _groups(settings: Settings, partitions: Mapping[SystemStream, int], remembered: Remembered) -> Groups:
    ssps = [
        SystemStreamPartition(stream.system, stream.stream, partition)
        for stream in input_order(settings.task.inputs)
        for partition in range(partitions[stream])
    ]
    if not ssps:
        raise ConfigError("the job has no input: set task.inputs to system.stream[,system.stream]")
    processors = ",".join(settings.job.container_ids)
    grouped = Settings.of({**settings.raw, PROCESSOR_LIST.name: processors})
    groups = ssp_grouper(grouped)(JavaHashMap.of(ssps), grouped)
    if not groups:
        raise ConfigError(
            "every partition of task.inputs is a broadcast one, so there is no task: add another input to task.inputs"
        )
    if not settings.job.is_expansion_enabled:
        return groups
    return keep_keys_with_their_state(groups, remembered.active_ssps, settings)


def _containers(
    settings: Settings, models: Mapping[TaskName, TaskModel], remembered: Remembered
) -> Assignment:
    job = settings.job
    if job.is_of_processors:
        return keep_in_place(list(models), job.container_ids, remembered.active)
    ids = JavaHashMap.of(map(str, job.container_ids))
    hosts = {id_: remembered.hosts.get(ContainerId(id_)) or ANY_HOST for id_ in ids}
    containers = Containers(
        hosts,
        lambda: task_order(models),
        remembered.active,
        job.is_host_affinity,
        job.processor_id or "0",
    )
    return task_name_grouper(settings)(list(models), containers)
