"""The orders of Samza's sets and maps that reach the job model's bytes, and with them its id.

A TaskModel's hash code contains the identity hash of an enum constant, which differs from JVM to JVM, so the order of
sets of tasks and containers does too. Ours is the order of a JVM in which that hash is IDENTITY_HASH, and always the
same; the planner of `interop/` is made one (`grete_workbench.plans`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from grete.grouping.standby import active_container
from grete.model.ids import ContainerId, SystemStream, TaskName
from grete.model.job import ContainerModel, TaskModel
from grete.wire.java_hash import JavaHashMap, java_hash, ssp_hash, string_hash
from grete.wire.scala_hash import immutable_map_order, mutable_map_order

_MASK = 0xFFFFFFFF
IDENTITY_HASH = 923_522
"""Any number would do, but another one moves tasks of jobs with GroupByContainerIds and host affinity."""


def input_order(inputs: Iterable[SystemStream]) -> list[SystemStream]:
    """The order in which Samza's StreamMetadataCache returns the inputs.

    TaskConfig makes a HashSet of them, Scala an immutable set of that, which is grouped by system; each system is
    asked for a set of names and answers with a HashMap; what they answered goes into one immutable map.
    """
    by_system: dict[str, list[SystemStream]] = {}
    for stream in immutable_map_order(list(JavaHashMap.of(inputs)), java_hash):
        by_system.setdefault(stream.system, []).append(stream)
    answered: list[SystemStream] = []
    for system in immutable_map_order(mutable_map_order(list(by_system), java_hash), java_hash):
        asked = immutable_map_order(by_system[system], java_hash)
        names = immutable_map_order([stream.stream for stream in asked], java_hash)
        found = [SystemStream(system, name) for name in JavaHashMap.of(names)]
        answered += mutable_map_order(found, java_hash)
    return immutable_map_order(answered, java_hash)


def task_hash(task: TaskModel) -> int:
    """TaskModel.hashCode."""
    ssps = sum(map(ssp_hash, task.ssps))
    result = (string_hash(task.name) * 31 + ssps) * 31 + task.changelog_partition
    return (result * 31 + IDENTITY_HASH) & _MASK


def _container_hash(container: ContainerModel) -> int:
    """ContainerModel.hashCode."""
    tasks = sum((string_hash(name) & _MASK) ^ task_hash(task) for name, task in container.tasks.items())
    return (31 * (31 + string_hash(container.id)) + tasks) & _MASK


def task_order(models: Mapping[TaskName, TaskModel]) -> list[TaskName]:
    """Tasks in the order of the HashSet<TaskModel> to which JobModelCalculator adds them by name."""

    def hash_of(name: TaskName) -> int:
        return task_hash(models[name])

    ordered: JavaHashMap[TaskName] = JavaHashMap(hash_of=hash_of)
    ordered.put_each(sorted(models))
    return list(ordered)


def container_order(
    containers: Mapping[ContainerId, ContainerModel], standby: Sequence[ContainerId]
) -> list[ContainerId]:
    """Containers in the order of the job model's map: out of sets of containers, the standby ones before the others.

    `containers` are in the order in which the grouper made them, then the standby ones, by replica of each.
    """
    by_id = JavaHashMap.of(containers)
    if not by_id.has_shared_bins:
        return list(by_id)  # however they came

    def hash_of(id_: ContainerId) -> int:
        return _container_hash(containers[id_])

    active: JavaHashMap[ContainerId] = JavaHashMap(hash_of=hash_of)
    active.put_each(id_ for id_ in containers if id_ not in standby)
    if not standby:
        return list(JavaHashMap.of(active))
    every: JavaHashMap[ContainerId] = JavaHashMap(hash_of=hash_of)
    places = {id_: place for place, id_ in enumerate(active)}
    every.put_each(sorted(standby, key=lambda id_: places[active_container(id_)]))
    every.put_each(active)
    return list(JavaHashMap.of(every))
