"""From a system's name in a configuration to the system: what `systems.<name>.samza.factory` says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grete.clock import Clock
from grete.config import aliases
from grete.config.settings import Settings
from grete.registry import load_object
from grete.systems.base import System, SystemContext

BUILT_IN = {
    "local": "grete.systems.local.system:open_local_system",
    "kafka": "grete.systems.kafka.system:open_kafka_system",
    "eventhubs": "grete.systems.eventhubs.system:open_eventhubs_system",
}
"""A function from a SystemContext to a System; plug-ins are entry points of the group `grete.systems`."""


def open_system(config: Mapping[str, str], name: str, home: Path, clock: Clock) -> System:
    """Open the system `name` of a configuration; without a factory it is the embedded one.

    Raises:
        ConfigError: the factory is not known, or the system misses a setting.
    """
    key = f"systems.{name}.samza.factory"
    kind = Settings.of(config).system(name).kind
    made = load_object(aliases.SYSTEMS, kind, built_in=BUILT_IN, used_by=key)
    system = made(SystemContext(config, name, home, clock))
    assert isinstance(system, System), f"{key}={kind!r} made no System"
    return system
