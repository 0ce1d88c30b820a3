"""The checkpoint tool's property format (S2-96): what the tool prints is what it reads.

`tasknames.<task>.systems.<system>.streams.<stream>.partitions.<partition> = <offset>`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.config.properties import parse_properties
from grete.model.ids import SystemStreamPartition, TaskName

_KEY = r"tasknames\.(?P<task>.+)\.systems\.(?P<system>.+)\.streams\.(?P<stream>.+)\.partitions\.(?P<partition>\d+)"
_LINE = re.compile(_KEY)
_PRINTED = re.compile(rf"\s*(?P<key>{_KEY})\s*=\s*(?P<offset>\S*)\s*")

Checkpoints = Mapping[TaskName, Mapping[SystemStreamPartition, str]]


def format_checkpoints(checkpoints: Checkpoints) -> Iterator[str]:
    """A line per task and SSP, sorted."""
    for task, offsets in sorted(checkpoints.items()):
        for ssp, offset in sorted(offsets.items()):
            yield (
                f"tasknames.{task}.systems.{ssp.system}.streams.{ssp.stream}.partitions.{ssp.partition} = {offset}"
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


def parse_checkpoint_text(
    text: str, *, origin: str
) -> tuple[dict[TaskName, dict[SystemStreamPartition, str]], list[str]]:
    """As `parse_checkpoints`, from a file: lines as the tool prints them, or a `.properties` file.

    In a `.properties` file a blank ends the key, so `Partition 0` has to be written `Partition\\ 0` there; the tool
    prints it without the backslash. A line that is printed is taken as it stands.

    Raises:
        ConfigError: a malformed escape; names the line.
    """
    printed: dict[str, str] = {}
    others: list[str] = []
    for line in text.splitlines():
        match = None if "\\" in line or line.lstrip()[:1] in ("#", "!") else _PRINTED.fullmatch(line)
        if match is None:
            others.append(line)
        else:
            printed[match["key"]] = match["offset"]
    return parse_checkpoints({**parse_properties("\n".join(others), origin=origin), **printed})
