"""Processors on several machines share no files: what would be in them is refused, with the way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.key_tables.coordinator import FACTORY, SYSTEM
from grete.config.key_tables.job import APP_CLASS, PROCESSOR_ADDRESS
from grete.config.rules.executors import embedded_systems
from grete.config.settings import Settings
from grete.errors import ConfigError


def processor_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each part of the job that only one machine has."""
    settings = Settings.of(config)
    address = settings.job.processor_address
    if not address:
        return
    way_out = f"or remove {PROCESSOR_ADDRESS.name} to run all processors on this machine"
    for key, name in (*_coordinated(settings), *embedded_systems(settings)):
        yield (
            f"{PROCESSOR_ADDRESS.name}={address}: {key} names the embedded system {name!r}, which is files of this "
            f"machine, and processors on others have no way to them. Name a system of Kafka, {way_out}"
        )
    if settings.coordinator.election == "sqlite":
        yield (
            f"{PROCESSOR_ADDRESS.name}={address}: {FACTORY.name}=sqlite elects by a file of this machine. Set it to "
            f"kafka, zookeeper, azure or kubernetes, {way_out}"
        )
    if settings.job.is_pipeline:
        yield (
            f"{PROCESSOR_ADDRESS.name}={address}: {APP_CLASS.name} is a pipeline, which goes on by Spark's own files "
            f"of its machine. Scale it by executors (spark.master), {way_out}"
        )


def _coordinated(settings: Settings) -> Iterator[tuple[str, str]]:
    """The system of the coordinator stream, where it is embedded."""
    try:
        name = settings.coordinator.system
    except ConfigError:
        return  # said elsewhere
    if settings.system(name).is_embedded:
        yield SYSTEM.name, name
