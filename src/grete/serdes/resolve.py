"""From configuration to serde objects (Samza's serializers.registry and its precedence)."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from grete.api import Serde
from grete.config.application_config import ApplicationConfig
from grete.config.key_tables.streams import STORE_KEY_SERDE, STORE_MSG_SERDE
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.serdes.avro import AvroSerde
from grete.serdes.base import StreamSerdes
from grete.serdes.builtin import (
    BytesSerde,
    DoubleSerde,
    IntegerSerde,
    JsonSerde,
    LongSerde,
    StringSerde,
    UuidSerde,
)

_SIMPLE: dict[str, Callable[[], Serde]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "json": JsonSerde,
    "integer": IntegerSerde,
    "long": LongSerde,
    "double": DoubleSerde,
    "uuid": UuidSerde,
}


def load_serde(name: str, settings: Settings, *, used_by: str, subject: str | None = None) -> Serde:
    """The serde called `name`. `used_by` is the key that named it, for the error; `subject` the one that a schema
    registry has for it by default.

    Raises:
        ConfigError: unknown name, or its class cannot be loaded.
    """
    implementation = settings.serde(name).implementation
    if implementation in _SIMPLE:
        return _SIMPLE[implementation]()
    if implementation == "avro":
        return AvroSerde.from_config(name, settings)
    if implementation == "avro-registry":
        from grete.serdes.avro_registry import (
            RegistryAvroSerde,
        )  # its client is 80 ms of every command's start

        return RegistryAvroSerde.from_config(name, settings, subject)
    if ":" in implementation:
        return _load_class(implementation, name, settings)
    known = ", ".join(sorted([*_SIMPLE, "avro", "avro-registry"]))
    raise ConfigError(
        f"{used_by} names the serde {name!r}, which is neither built in ({known}) nor registered; "
        f"set serializers.registry.{name}.class to module:Class"
    )


def _load_class(path: str, name: str, settings: Settings) -> Serde:
    module_name, _, attribute = path.partition(":")
    key = f"serializers.registry.{name}.class"
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}: cannot load {path!r} ({error})") from error
    made = (
        factory.from_config(name, ApplicationConfig(settings.raw))
        if hasattr(factory, "from_config")
        else factory()
    )
    if not isinstance(made, Serde):
        raise ConfigError(f"{key}: {path!r} is not a grete.Serde")
    return made


def stream_serdes(stream: SystemStream, settings: Settings) -> StreamSerdes:
    """Serdes of a stream: its own settings before its system's; bytes when nothing is said."""
    own = settings.stream(stream)
    return StreamSerdes(
        key=_serde(own.key_serde, settings, stream, "key"),
        message=_serde(own.msg_serde, settings, stream, "value"),
    )


def _serde(said: tuple[str, str] | None, settings: Settings, stream: SystemStream, part: str) -> Serde:
    if said is None:
        return BytesSerde()
    subject = f"{stream.stream}-{part}"
    return load_serde(said[1], settings, used_by=f"{said[0]} of {stream}", subject=subject)


def store_serdes(store: str, settings: Settings) -> StreamSerdes:
    """Serdes of a store: `stores.<name>.key.serde` (string) and `stores.<name>.msg.serde` (json)."""
    own = settings.store(store)
    return StreamSerdes(
        key=load_serde(own.key_serde, settings, used_by=STORE_KEY_SERDE.named(store)),
        message=load_serde(own.msg_serde, settings, used_by=STORE_MSG_SERDE.named(store)),
    )
