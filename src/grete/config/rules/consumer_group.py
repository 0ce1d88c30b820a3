"""The consumer group that shows a job's progress to Kafka's tools has a name that they can show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.config.key_tables.task import CONSUMER_GROUP
from grete.config.settings import Settings
from grete.errors import ConfigError

_NAME = re.compile(r"[!-~]{1,249}")
"""Brokers take any text; what has blanks, control characters or other letters is lost in tools and their metrics."""


def consumer_group_problems(config: Mapping[str, str]) -> Iterator[str]:
    """A name that tools would stumble over, or a job whose inputs have no consumer groups; each with the way out."""
    settings = Settings.of(config)
    group = settings.task.consumer_group
    if group is None:
        return
    if not _NAME.fullmatch(group):
        yield (
            f"{CONSUMER_GROUP.name}={group!r}: a group's name has letters, digits and punctuation of ASCII, no "
            f"blanks, and at most 249 characters; write such a name, or remove the key"
        )
    systems = _input_systems(settings)
    if systems and not any(settings.system(system).capabilities.consumer_groups for system in systems):
        yield (
            f"{CONSUMER_GROUP.name}={group!r}: consumer groups are the brokers', and no input of this job is on "
            f"Kafka (its inputs are of the system {', '.join(systems)}); remove the key, and see the lag with grete "
            f"status"
        )


def _input_systems(settings: Settings) -> list[str]:
    try:
        inputs = settings.task.all_inputs
    except ConfigError:
        return []  # of another form than system.stream: said elsewhere
    return sorted({stream.system for stream in inputs})
