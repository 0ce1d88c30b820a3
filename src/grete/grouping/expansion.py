"""Partition expansion of a stateful job (SEP-5, SSPGrouperProxy): new partitions go where their keys' state is.

When a stream has grown to a multiple of its partitions, keys of partition p are now in p, p+n, p+2n ... and all of
these go to the task that had p. Streams that are new keep the task that the grouper gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grete.errors import ConfigError
from grete.grouping.ssp import Groups, broadcast_ssps
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.wire.java_hash import hash_set_order


def refused_count(stream: SystemStream, *, previous_count: int, current_count: int) -> str | None:
    """Why a stateful job cannot follow its keys to another number of partitions, and the way out; None if it can."""
    if current_count % previous_count == 0:
        return None
    what = "lost partitions, and their keys" if current_count < previous_count else "has no multiple of them"
    return (
        f"{stream} had {previous_count} partitions and has {current_count}: it {what}, so a stateful job cannot tell "
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


def _counts(ssps: Iterable[SystemStreamPartition]) -> dict[SystemStream, int]:
    partitions: dict[SystemStream, set[int]] = {}
    for ssp in ssps:
        partitions.setdefault(ssp.system_stream, set()).add(ssp.partition)
    return {stream: len(found) for stream, found in partitions.items()}


def keep_keys_with_their_state(
    groups: Groups,
    previous: Mapping[TaskName, Iterable[SystemStreamPartition]],
    config: Mapping[str, str],
) -> Groups:
    """Move SSPs of grown streams to the tasks that had their keys; unchanged when nothing was assigned before.

    Raises:
        ConfigError: see `previous_ssp`.
    """
    if not any(key.startswith("stores.") and key.endswith(".factory") for key in config):
        return groups  # without state no key needs to stay where it was
    shared = set(broadcast_ssps(config))
    owners = {ssp: task for task, ssps in previous.items() for ssp in ssps if ssp not in shared}
    if not owners:
        return groups
    before = _counts(owners)
    now = _counts(ssp for ssps in groups.values() for ssp in ssps if ssp not in shared)
    sets: dict[TaskName, list[SystemStreamPartition]] = {}
    for task, ssps in groups.items():
        for ssp in ssps:
            owner = task
            stream = ssp.system_stream
            if ssp not in shared and stream in before:
                origin = previous_ssp(ssp, previous_count=before[stream], current_count=now[stream])
                owner = owners.get(origin, task)
            sets.setdefault(owner, []).append(ssp)
    return {task: hash_set_order(members) for task, members in sets.items()}
