"""How SSPs become tasks: by partition, one by one, or all of them to every processor's task.

A grouper is a function from SSPs and configuration to {task name: SSPs}. Broadcast SSPs
(`task.broadcast.inputs`: `system.stream#0` or `system.stream#[0-3]`) go to every task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from grete.errors import ConfigError
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName

Groups = dict[TaskName, set[SystemStreamPartition]]
SspGrouper = Callable[[Iterable[SystemStreamPartition], Mapping[str, str]], Groups]

_BROADCAST = re.compile(r"(?P<stream>[^#]+)#(?:(?P<one>\d+)|\[(?P<low>\d+)-(?P<high>\d+)\])")


def broadcast_ssps(config: Mapping[str, str]) -> set[SystemStreamPartition]:
    """The SSPs that `task.broadcast.inputs` names.

    Raises:
        ConfigError: an entry is not of the form system.stream#N or system.stream#[M-N].
    """
    found: set[SystemStreamPartition] = set()
    for entry in _csv(config.get("task.broadcast.inputs", "")):
        match = _BROADCAST.fullmatch(entry)
        if match is None:
            raise ConfigError(
                f"task.broadcast.inputs={entry!r}: write system.stream#partition or system.stream#[first-last]"
            )
        stream = SystemStream.parse(match["stream"])
        low = int(match["one"] if match["one"] is not None else match["low"])
        high = int(match["one"] if match["one"] is not None else match["high"])
        if low > high:
            raise ConfigError(f"task.broadcast.inputs={entry!r}: the range ends before it begins")
        found |= {SystemStreamPartition(stream.system, stream.stream, p) for p in range(low, high + 1)}
    return found


def _csv(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def ssp_label(ssp: SystemStreamPartition) -> str:
    """Java's toString of an SSP, a task's name when every SSP has its own task."""
    bucket = f", {ssp.key_bucket}" if ssp.key_bucket >= 0 else ""
    return f"SystemStreamPartition [{ssp.system}, {ssp.stream}, {ssp.partition}{bucket}]"


def group_by_partition(ssps: Iterable[SystemStreamPartition], config: Mapping[str, str]) -> Groups:
    """GroupByPartition: task "Partition N" reads partition N of every stream."""
    broadcast = broadcast_ssps(config)
    return _group(ssps, broadcast, lambda ssp: _partition_task(ssp))


def _partition_task(ssp: SystemStreamPartition) -> str:
    bucket = f" {ssp.key_bucket}" if ssp.key_bucket >= 0 else ""
    return f"Partition {ssp.partition}{bucket}"


def group_by_ssp(ssps: Iterable[SystemStreamPartition], config: Mapping[str, str]) -> Groups:
    """GroupBySystemStreamPartition: a task per SSP."""
    return _group(ssps, broadcast_ssps(config), ssp_label)


def _group(
    ssps: Iterable[SystemStreamPartition],
    broadcast: set[SystemStreamPartition],
    name_of: Callable[[SystemStreamPartition], str],
) -> Groups:
    groups: Groups = {}
    shared: set[SystemStreamPartition] = set()
    for ssp in ssps:
        if SystemStreamPartition(ssp.system, ssp.stream, ssp.partition) in broadcast:
            shared.add(ssp)
        else:
            groups.setdefault(TaskName(name_of(ssp)), set()).add(ssp)
    for members in groups.values():
        members |= shared
    return groups


def all_ssps_to_single_task(ssps: Iterable[SystemStreamPartition], config: Mapping[str, str]) -> Groups:
    """AllSspToSingleTask: one task per processor of `processor.list`, each reading everything."""
    everything = set(ssps)
    processors = _csv(config.get("processor.list", "")) or [config.get("processor.id", "0")]
    return {TaskName(f"Task-{processor}"): set(everything) for processor in processors}


_PACKAGE = "org.apache.samza.container.grouper.stream."
GROUPERS: dict[str, SspGrouper] = {
    f"{_PACKAGE}GroupByPartitionFactory": group_by_partition,
    f"{_PACKAGE}GroupBySystemStreamPartitionFactory": group_by_ssp,
    f"{_PACKAGE}AllSspToSingleTaskGrouperFactory": all_ssps_to_single_task,
}
DEFAULT = f"{_PACKAGE}GroupByPartitionFactory"
KEY = "job.systemstreampartition.grouper.factory"


def ssp_grouper(config: Mapping[str, str]) -> SspGrouper:
    """The configured grouper, by Samza's class name or its last part.

    Raises:
        ConfigError: unknown; lists the known ones.
    """
    name = config.get(KEY, DEFAULT)
    for known, grouper in GROUPERS.items():
        if name in (known, known.removeprefix(_PACKAGE)):
            return grouper
    raise ConfigError(f"{KEY}={name!r} is not known; known are {', '.join(sorted(GROUPERS))}")
