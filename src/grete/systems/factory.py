"""Opens the system of a name, by `systems.<name>.samza.factory` of the configuration."""

from __future__ import annotations

from pathlib import Path

from grete.clock import Clock
from grete.config.key_tables.streams import SYSTEM_FACTORY
from grete.config.settings import Settings
from grete.config.system_types import system_type
from grete.registry import import_object
from grete.systems.base import System, SystemContext


def open_system(settings: Settings, name: str, home: Path, clock: Clock) -> System:
    """Open the system `name` of a configuration; without a factory it is the embedded one.

    Raises:
        ConfigError: the factory is not known, or the system misses a setting.
    """
    key = SYSTEM_FACTORY.named(name)
    kind = settings.system(name).kind
    made = import_object(system_type(kind, key).opens, used_by=key)
    system = made(SystemContext(settings, name, home, clock))
    assert isinstance(system, System), f"{key}={kind!r} made no System"
    return system
