"""From configuration to serde objects (Samza's serializers.registry and its precedence)."""

from __future__ import annotations

from grete.api import Serde
from grete.application.serdes import BUILT_IN, BytesSerde, StreamSerdes, load_own_serde
from grete.config.application_config import ApplicationConfig
from grete.config.key_tables.streams import STORE_KEY_SERDE, STORE_MSG_SERDE
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.serdes.avro import AvroSerde


def load_serde(name: str, settings: Settings, *, used_by: str, subject: str | None = None) -> Serde:
    """The serde called `name`. `used_by` is the key that named it, for the error; `subject` the one that a schema
    registry has for it by default.

    Raises:
        ConfigError: unknown name, or its class cannot be loaded.
    """
    implementation = settings.serde(name).implementation
    if implementation in BUILT_IN:
        return BUILT_IN[implementation]()
    if implementation == "avro":
        return AvroSerde.from_config(name, settings)
    if implementation == "avro-registry":
        from grete.serdes.avro_registry import (
            RegistryAvroSerde,
        )  # its client is 80 ms of every command's start

        return RegistryAvroSerde.from_config(name, settings, subject)
    if ":" in implementation:
        return _load_own(implementation, name, settings)
    known = ", ".join(sorted([*BUILT_IN, "avro", "avro-registry"]))
    raise ConfigError(
        f"{used_by} names the serde {name!r}, which is neither built in ({known}) nor registered; "
        f"set serializers.registry.{name}.class to module:Class"
    )


def _load_own(path: str, name: str, settings: Settings) -> Serde:
    try:
        return load_own_serde(path, name, ApplicationConfig(settings.raw))
    except ConfigError as error:
        if not settings.job.is_isolated:
            raise
        raise ConfigError(
            f"the serde {name!r} is not in the framework's environment ({error}), and classes of an application with "
            f"job.split.deployment.enabled=true are in its own process alone. What is done here needs a serde of "
            f"grete's, or {path!r} installed in the framework's environment; to place keys of the stream, also "
            f"samza.partitioner=kafka will do"
        ) from error


def serde_names(stream: SystemStream, settings: Settings) -> tuple[tuple[str, str], tuple[str, str]]:
    """Implementation and name of the serdes of a stream's keys and messages, for a process that loads them."""
    own = settings.stream(stream)
    key, message = (_named(said, settings, str(stream)) for said in (own.key_serde, own.msg_serde))
    return key, message


def store_serde_names(store: str, settings: Settings) -> tuple[tuple[str, str], tuple[str, str]]:
    """As `serde_names`, of a store."""
    own = settings.store(store)
    key, message = (_named(("stores", name), settings, store) for name in (own.key_serde, own.msg_serde))
    return key, message


def _named(said: tuple[str, str] | None, settings: Settings, place: str) -> tuple[str, str]:
    if said is None:
        return "bytes", "bytes"
    name = said[1]
    implementation = settings.serde(name).implementation
    if implementation not in BUILT_IN and ":" not in implementation:
        raise ConfigError(
            f"{place} has the serde {name!r}, which an application with job.split.deployment.enabled=true cannot "
            f"have; use one of {', '.join(sorted(BUILT_IN))}, or one of the application's own, registered with "
            f"serializers.registry.{name}.class=module:Class"
        )
    return implementation, name


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
