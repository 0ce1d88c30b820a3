"""How SSPs become tasks: by partition, one by one, or all of them to every processor's task.

A grouper is a pure function from SSPs and configuration to {task name: SSPs}: equal inputs give equal groups, since a
task's name leads to its checkpoint and its state. SSPs are in the order of the
java.util.HashSet that the original builds, since that order reaches the job model's bytes. Broadcast SSPs
(`task.broadcast.inputs`: `system.stream#0` or `system.stream#[0-3]`) go to every task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from grete.config import aliases
from grete.config.application_classes import ask_application
from grete.config.key_tables.job import SSP_GROUPER
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStreamPartition, TaskName, ssp_label
from grete.registry import is_class_of_application, load_object
from grete.wire.java_hash import JavaHashMap, hash_set_order

Groups = dict[TaskName, tuple[SystemStreamPartition, ...]]
SspGrouper = Callable[[Iterable[SystemStreamPartition], Settings], Groups]
TaskNamer = Callable[[SystemStreamPartition], str]


def _partition_label(ssp: SystemStreamPartition) -> str:
    bucket = f" {ssp.key_bucket}" if ssp.key_bucket >= 0 else ""
    return f"Partition {ssp.partition}{bucket}"


def group_by_partition(ssps: Iterable[SystemStreamPartition], settings: Settings) -> Groups:
    """GroupByPartition: task "Partition N" reads partition N of every stream."""
    return _group(ssps, settings, _partition_label)


def group_by_ssp(ssps: Iterable[SystemStreamPartition], settings: Settings) -> Groups:
    """GroupBySystemStreamPartition: a task per SSP."""
    return _group(ssps, settings, ssp_label)


def _group(ssps: Iterable[SystemStreamPartition], settings: Settings, label: TaskNamer) -> Groups:
    shared = JavaHashMap.of(settings.task.broadcast_inputs)
    buckets = _elasticity(settings)
    members: dict[TaskName, list[SystemStreamPartition]] = {}
    for ssp in ssps:
        if ssp in shared:
            continue
        for member in _bucketed(ssp, buckets):
            members.setdefault(TaskName(label(member)), []).append(member)
    return {task: hash_set_order([*own, *shared]) for task, own in members.items()}


def _elasticity(settings: Settings) -> int:
    """Samza's elasticity factor: key buckets per SSP. Jobs with more than 1 are refused at submit."""
    factor = settings.job.elasticity_factor
    if factor < 1:
        raise ConfigError("Elasticity factor can not be less than 1")
    return factor


def _bucketed(ssp: SystemStreamPartition, buckets: int) -> list[SystemStreamPartition]:
    if buckets <= 1:
        return [ssp]
    return [SystemStreamPartition(ssp.system, ssp.stream, ssp.partition, bucket) for bucket in range(buckets)]


def all_ssps_to_single_task(ssps: Iterable[SystemStreamPartition], settings: Settings) -> Groups:
    """AllSspToSingleTask: one task per processor of `processor.list`, each reading everything.

    Raises:
        ConfigError: there are broadcast inputs, or no processor list.
    """
    if settings.task.broadcast_inputs:
        raise ConfigError("The job configured with AllSspToSingleTaskGrouper cannot have broadcast streams.")
    everything = tuple(ssps)
    processors = settings.job.processors
    if not processors:
        raise ConfigError("AllSspToSingleTaskGrouper needs processor.list, which names the job's processors")
    return {TaskName(f"Task-{processor}"): everything for processor in processors}


BUILT_IN = {
    "GroupByPartitionFactory": "grete.grouping.ssp:group_by_partition",
    "GroupBySystemStreamPartitionFactory": "grete.grouping.ssp:group_by_ssp",
    "AllSspToSingleTaskGrouperFactory": "grete.grouping.ssp:all_ssps_to_single_task",
}
"""An SspGrouper; plug-ins are entry points of `grete.ssp_groupers`."""
KEY = SSP_GROUPER.name
_SHOWN = 10


def ssp_grouper(settings: Settings) -> SspGrouper:
    """The configured grouper, by Samza's class name or its last part, an installed plug-in, or the application's.

    Raises:
        ConfigError: unknown; lists the known ones.
    """
    name = aliases.canonical(aliases.SSP_GROUPERS, settings.job.ssp_grouper)
    if is_class_of_application(aliases.SSP_GROUPERS, name, BUILT_IN):
        return partial(_group_there, name)
    grouper: SspGrouper = load_object(
        aliases.SSP_GROUPERS, name, built_in=BUILT_IN, accepts_classes=True, used_by=KEY
    )
    return grouper


def _group_there(path: str, ssps: Iterable[SystemStreamPartition], settings: Settings) -> Groups:
    """Groups that a class of the application makes; broadcast SSPs are added to each."""
    shared = JavaHashMap.of(settings.task.broadcast_inputs)
    own = [one for one in ssps if one not in shared]
    given = [[one.system, one.stream, one.partition] for one in own]
    made = ask_application(settings.job, "group", path, KEY, [given, dict(settings.raw)])
    members = {TaskName(task): [SystemStreamPartition(*one) for one in of_task] for task, of_task in made}
    grouped = {one for of_task in members.values() for one in of_task}
    if grouped != set(own) or not all(members):
        wrong = sorted(map(str, grouped.symmetric_difference(own))) or ["a task without a name"]
        raise ConfigError(
            f"{KEY}={path!r} has to put each of the SSPs that it is given into a task with a name, and no other; "
            f"wrong are {', '.join(wrong[:_SHOWN])}"
        )
    return {task: hash_set_order([*of_task, *shared]) for task, of_task in members.items() if of_task}
