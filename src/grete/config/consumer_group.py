"""What a configuration says of the consumer group that shows, to tools of Kafka, how far a job has come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.config.key_tables.task import CONSUMER_GROUP
from grete.config.settings import Settings
from grete.errors import ConfigError

_NAME = re.compile(r"[!-~]{1,249}")
"""Brokers take any text; what has blanks, control characters or other letters is lost in tools and their metrics."""


def consumer_group(config: Mapping[str, str]) -> str | None:
    """The group's name, None when the job shows itself in none."""
    return config.get(CONSUMER_GROUP.name)


def consumer_group_problems(config: Mapping[str, str]) -> Iterator[str]:
    """A name that tools would stumble over, or a job whose inputs have no consumer groups; each with the way out."""
    group = consumer_group(config)
    if group is None:
        return
    if not _NAME.fullmatch(group):
        yield (
            f"{CONSUMER_GROUP.name}={group!r}: a group's name has letters, digits and punctuation of ASCII, no "
            f"blanks, and at most 249 characters; write such a name, or remove the key"
        )
    systems = _input_systems(config)
    if systems and not any(
        Settings.of(config).system(system).capabilities.consumer_groups for system in systems
    ):
        yield (
            f"{CONSUMER_GROUP.name}={group!r}: consumer groups are the brokers', and no input of this job is on "
            f"Kafka (its inputs are of the system {', '.join(systems)}); remove the key, and see the lag with grete "
            f"status"
        )


def _input_systems(config: Mapping[str, str]) -> list[str]:
    try:
        inputs = Settings.of(config).task.all_inputs
    except ConfigError:
        return []  # of another form than system.stream: said elsewhere
    return sorted({stream.system for stream in inputs})
