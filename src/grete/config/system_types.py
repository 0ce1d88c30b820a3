"""The kinds of systems: what is known of each without opening one. Plug-ins are entry points of `grete.systems`."""

from __future__ import annotations

from grete.config import aliases
from grete.errors import ConfigError
from grete.model.capabilities import Capabilities, SystemType
from grete.registry import load_object

BUILT_IN = {
    "local": "grete.systems.local:SYSTEM",
    "kafka": "grete.systems.kafka:SYSTEM",
    "eventhubs": "grete.systems.eventhubs:SYSTEM",
}
_UNKNOWN = Capabilities(consumer_groups=True)
"""Of a kind that is not known: validation says so, and nothing else of it."""


def system_type(kind: str, used_by: str = "samza.factory of a system") -> SystemType:
    """The kind of system of this name. `used_by` is the key that named it, for the error.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    found = load_object(aliases.SYSTEMS, kind, built_in=BUILT_IN, used_by=used_by)
    if not isinstance(found, SystemType):
        raise ConfigError(f"{used_by}={kind!r} names no SystemType but {found!r}; see docs/backends.md")
    return found


def find_type(kind: str) -> SystemType | None:
    """The kind of system of this name, None when it cannot be loaded."""
    try:
        return system_type(kind)
    except ConfigError:
        return None


def capabilities(kind: str) -> Capabilities:
    """The capabilities of systems of the kind."""
    found = find_type(kind)
    return _UNKNOWN if found is None else found.capabilities
