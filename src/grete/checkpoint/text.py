"""The checkpoint tool's property format (S2-96): what the tool prints is what it reads.

`tasknames.<task>.systems.<system>.streams.<stream>.partitions.<partition>=<offset>`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.model.ids import SystemStreamPartition, TaskName

_LINE = re.compile(
    r"tasknames\.(?P<task>.+)\.systems\.(?P<system>.+)\.streams\.(?P<stream>.+)\.partitions\.(?P<partition>\d+)"
)

Checkpoints = Mapping[TaskName, Mapping[SystemStreamPartition, str]]


def format_checkpoints(checkpoints: Checkpoints) -> Iterator[str]:
    """A line per task and SSP, sorted."""
    for task, offsets in sorted(checkpoints.items()):
        for ssp, offset in sorted(offsets.items()):
            yield (
                f"tasknames.{task}.systems.{ssp.system}.streams.{ssp.stream}.partitions.{ssp.partition}={offset}"
            )


def parse_checkpoints(
    properties: Mapping[str, str],
) -> tuple[dict[TaskName, dict[SystemStreamPartition, str]], list[str]]:
    """(offsets by task, keys that were not understood). Task names may contain dots (S2-97)."""
    found: dict[TaskName, dict[SystemStreamPartition, str]] = {}
    unknown = []
    for key, offset in properties.items():
        match = _LINE.fullmatch(key)
        if match is None:
            unknown.append(key)
            continue
        ssp = SystemStreamPartition(match["system"], match["stream"], int(match["partition"]))
        found.setdefault(TaskName(match["task"]), {})[ssp] = offset
    return found, unknown
