"""Executors of a cluster are on machines of their own: they see no file of the coordinator's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.key_tables.streams import SPARK_MASTER
from grete.config.key_tables.task import DEAD_LETTERS, INPUTS, LOG_SYSTEM, OUTPUTS
from grete.config.settings import Settings
from grete.errors import ConfigError


def executor_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each embedded system that executors would have to open, with the way out."""
    settings = Settings.of(config)
    if settings.spark.is_local:
        return
    for key, name in embedded_systems(settings):
        yield (
            f"{SPARK_MASTER.name}={settings.spark.master}: {key} names the embedded system {name!r}, "
            f"which is files of this machine, and executors of a cluster have no way to them. Name streams "
            f"of Kafka, or remove {SPARK_MASTER.name} to run the job on this machine"
        )


def embedded_systems(settings: Settings) -> Iterator[tuple[str, str]]:
    """The embedded systems that tasks open, each with the key that names it."""
    try:
        named = {INPUTS.name: settings.task.all_inputs, OUTPUTS.name: settings.task.outputs}
        letters = settings.task.dead_letters
        named[DEAD_LETTERS.name] = () if letters is None else (letters,)
    except ConfigError:
        return  # names that are no names are said elsewhere
    systems = {key: {stream.system for stream in streams} for key, streams in named.items()}
    systems[LOG_SYSTEM.name] = {settings.job.log_system or ""} - {""}
    for key, names in systems.items():
        yield from ((key, name) for name in sorted(names) if settings.system(name).is_embedded)
