"""Partition expansion of a stateful job (SEP-5, SSPGrouperProxy): new partitions go where their keys' state is.

When a stream has grown to a multiple of its partitions, keys of partition p are now in p, p+n, p+2n ... and all of
these go to the task that had p. Streams that are new keep the task that the grouper gives them, and so does a
partition that several tasks read: its keys' state is in no one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.grouping.ssp import Groups
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.wire.java_hash import JavaHashMap

Move = tuple[TaskName, SystemStreamPartition, TaskName]
"""(from this task, what, to that one)."""


def refused_count(stream: SystemStream, *, previous_count: int, current_count: int) -> str | None:
    """Why a stateful job cannot follow its keys to another number of partitions, and the way out; None if it can."""
    if current_count % previous_count == 0:
        return None
    what = "lost partitions, and their keys" if current_count < previous_count else "has no multiple of them"
    return (
        f"{stream} had {previous_count} partitions and has {current_count}: it {what}, so a stateful job cannot know "
        f"which task has the state of a key. Restore the stream with {previous_count} partitions or grow it to a "
        f"multiple of them; to give up the state, give the job a new job.id"
    )


def previous_ssp(
    ssp: SystemStreamPartition, *, previous_count: int, current_count: int
) -> SystemStreamPartition:
    """HashSystemStreamPartitionMapper: where the keys of `ssp` were before.

    Raises:
        ConfigError: the new count is no multiple of the old one, so keys cannot be followed.
    """
    problem = refused_count(ssp.system_stream, previous_count=previous_count, current_count=current_count)
    if problem is not None:
        raise ConfigError(problem)
    return SystemStreamPartition(ssp.system, ssp.stream, ssp.partition % previous_count, ssp.key_bucket)


def _partition_counts(ssps: Iterable[SystemStreamPartition]) -> dict[SystemStream, int]:
    """How many partitions each stream has, broadcast ones too: a key's partition follows from all of them."""
    partitions: dict[SystemStream, set[int]] = {}
    for ssp in ssps:
        partitions.setdefault(ssp.system_stream, set()).add(ssp.partition)
    return {stream: len(found) for stream, found in partitions.items()}


def _only_owners(
    tasks: Mapping[TaskName, Iterable[SystemStreamPartition]],
) -> dict[SystemStreamPartition, TaskName]:
    """The task of each SSP that only one task reads."""
    owners: dict[SystemStreamPartition, TaskName] = {}
    several = set()
    for task, ssps in tasks.items():
        for ssp in ssps:
            if ssp in owners:
                several.add(ssp)
            owners[ssp] = task
    return {ssp: task for ssp, task in owners.items() if ssp not in several}


def keep_keys_with_their_state(
    groups: Groups,
    previous: Mapping[TaskName, Iterable[SystemStreamPartition]],
    settings: Settings,
) -> Groups:
    """Move SSPs of grown streams to the tasks that had their keys; unchanged when nothing was assigned before.

    Raises:
        ConfigError: see `previous_ssp`.
    """
    if not settings.is_stateful:
        return groups  # without state no key needs to stay where it was
    shared = set(settings.task.broadcast_inputs)
    owners = {ssp: task for ssp, task in _only_owners(previous).items() if ssp not in shared}
    if not owners:
        return groups
    movable = {ssp for ssp in _only_owners(groups) if ssp not in shared}
    before = _partition_counts(ssp for ssps in previous.values() for ssp in ssps)
    now = _partition_counts(ssp for ssps in groups.values() for ssp in ssps)
    moves: list[Move] = []
    for task in JavaHashMap.of(JavaHashMap.of(groups)):
        for ssp in groups[task]:
            stream = ssp.system_stream
            if ssp in movable and stream in before:
                origin = previous_ssp(ssp, previous_count=before[stream], current_count=now[stream])
                owner = owners.get(origin, task)
                if owner != task:
                    moves.append((task, ssp, owner))
    return _moved(groups, moves, list(JavaHashMap.of(settings.task.broadcast_inputs)))


def _moved(groups: Groups, moves: Sequence[Move], shared: Sequence[SystemStreamPartition]) -> Groups:
    """The groups after the moves, one by one, in the order of Samza's PartitionGroups; empty ones are gone.

    A task that the grouper no longer makes is kept when it has a partition's state; Samza fails there.
    """
    touched = {task for before, _, after in moves for task in (before, after)}
    sets = {
        task: JavaHashMap.hash_set_of(ssps)
        for task, ssps in groups.items()
        if len(ssps) > 1 or task in touched  # the others need no table: there may be 100,000 of them
    }
    for task, ssp, owner in moves:
        sets[task].remove(ssp)
        if owner not in sets:
            sets[owner] = JavaHashMap.hash_set_of(shared)
        sets[owner].put(ssp)
    every = {**groups, **{task: tuple(ssps) for task, ssps in sets.items()}}
    return {task: ssps for task, ssps in every.items() if ssps}
