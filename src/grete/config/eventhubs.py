"""What a configuration says of systems on Azure Event Hubs, in Samza's keys, for their Kafka endpoint.

A hub is a topic of its namespace's endpoint, port 9093, through SASL_SSL. The user is always `$ConnectionString`, the
password a connection string that names a shared access policy and its key. Whatever `systems.<system>.consumer.*` and
`.producer.*` say of brokers and logins goes before: for other clouds, private endpoints and emulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grete.config import aliases
from grete.config.key_tables import eventhubs as keys
from grete.config.secrets import has_reference, resolve_secrets
from grete.config.settings import Settings
from grete.config.settings.streams import (
    physical_name,
    stream_id_of,
    stream_ids,
    stream_system,
    system_stream_from_names,
)
from grete.errors import ConfigError
from grete.model.ids import SystemStream

KIND = "eventhubs"
USER = "$ConnectionString"
_CLOUD = ".servicebus.windows.net"
_PORT = 9093
_WHOLE = "Endpoint="
CHECKPOINTS = "task.checkpoint.system"


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where a hub is and how to get in, as settings of a Kafka client; references to secrets are resolved."""

    topic: str
    client: Mapping[str, str] = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)
    """The key of the configuration behind each setting that is not the system's own."""


def is_eventhubs(config: Mapping[str, str], system: str) -> bool:
    """Whether a system is configured to be on Event Hubs."""
    return aliases.canonical(aliases.SYSTEMS, config.get(f"systems.{system}.samza.factory", "")) == KIND


def hub_address(config: Mapping[str, str], system: str, stream: str) -> HubAddress:
    """The hub behind a stream. `client` is overlaid by the system's own client settings, if there are any.

    Raises:
        ConfigError: namespace, policy or key are not set, or a reference cannot be resolved.
    """
    problems = list(_stream_problems(config, system, stream))
    if problems:
        raise ConfigError(*problems)
    client, origins = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, {}
    host = _host(config, system, stream)
    if host is not None:
        client["bootstrap.servers"] = f"{host}:{_PORT}"
        origins["bootstrap.servers"] = _key(config, system, stream, keys.NAMESPACE.name)
    token = _get(config, system, stream, keys.SAS_TOKEN.name)
    if token is not None:
        policy = _get(config, system, stream, keys.SAS_KEY_NAME.name) or ""
        origins["sasl.password"] = _key(config, system, stream, keys.SAS_TOKEN.name)
        try:
            client |= {"sasl.username": USER, "sasl.password": _connection(host or "", policy, token)}
        except ConfigError as error:
            raise ConfigError(f"{origins['sasl.password']}: {error}") from error
    topic = _get(config, system, stream, keys.ENTITY_PATH.name) or stream
    return HubAddress(topic, client, origins)


def _connection(host: str, policy: str, token: str) -> str:
    key = resolve_secrets(token)
    if key.startswith(_WHOLE):
        return key
    if not policy:
        raise ConfigError("the key of a shared access policy is set, and not the policy's name")
    return f"Endpoint=sb://{host}/;SharedAccessKeyName={resolve_secrets(policy)};SharedAccessKey={key}"


def _host(config: Mapping[str, str], system: str, stream: str) -> str | None:
    namespace = _get(config, system, stream, keys.NAMESPACE.name)
    if namespace is None:
        return None
    return namespace if "." in namespace else f"{namespace}{_CLOUD}"


def _key(config: Mapping[str, str], system: str, stream: str, name: str) -> str:
    """The key that says it: of the stream's id, else of the stream itself (EventHubConfig's order)."""
    own = name % (stream_id_of(config, SystemStream(system, stream)) or stream)
    return own if own in config else name % stream if name % stream in config else own


def _get(config: Mapping[str, str], system: str, stream: str, name: str) -> str | None:
    return config.get(_key(config, system, stream, name), "").strip() or None


def keys_of_system(config: Mapping[str, str], system: str) -> dict[str, str]:
    """What a process needs to ask a system about its streams: its own keys, on Event Hubs also those of streams."""
    of_streams = (
        ("streams.", "sensitive.streams.")
        if Settings.of(config).system(system).capabilities.configured_by_streams
        else ()
    )
    prefixes = (f"systems.{system}.", *of_streams)
    return {key: value for key, value in config.items() if key.startswith(prefixes)}


def commits_beside(config: Mapping[str, str], system: str) -> str | None:
    """The system that keeps what a system on Event Hubs cannot; None for any other kind, or when none is named."""
    named = config.get(CHECKPOINTS, "").strip()
    if not named or Settings.of(config).system(system).capabilities.keeps_state:
        return None
    return named if Settings.of(config).system(named).capabilities.keeps_state else None


def name_within(config: Mapping[str, str], system: str, stream: SystemStream) -> str | None:
    """What a container's system calls a stream that its tasks write; None when they cannot.

    A system on Event Hubs knows the streams of the system beside it as `system.stream`.
    """
    if stream.system == system:
        return stream.stream
    return str(stream) if stream.system == commits_beside(config, system) else None


# --- problems ---


def eventhubs_problems(config: Mapping[str, str]) -> Iterator[str]:
    """What Event Hubs cannot do for a job, each with the way out; and what its streams miss."""
    for system in Settings.of(config).system_names:
        if is_eventhubs(config, system):
            yield from _coordinator_problems(config, system)
            yield from _input_problems(config, system)
            for stream in sorted(_streams(config, system)):
                yield from _stream_problems(config, system, stream)


def _coordinator_problems(config: Mapping[str, str], system: str) -> Iterator[str]:
    try:
        if Settings.of(config).coordinator.system != system:
            return
    except ConfigError:
        return  # several systems and none named: said elsewhere
    yield (
        f"the coordinator stream cannot live on Event Hubs (system {system!r}): it needs a compacted topic and "
        f"transactions. Set job.coordinator.system to a Kafka system, or to local for the embedded SQLite log"
    )


def _input_problems(config: Mapping[str, str], system: str) -> Iterator[str]:
    if all(stream.system != system for stream in _inputs(config)):
        return
    named = config.get(CHECKPOINTS, "").strip()
    if not named or is_eventhubs(config, named):
        yield (
            f"{CHECKPOINTS}={named!r}: Event Hubs (system {system!r}) has no transactions and no compaction, so "
            f"checkpoints and changelogs of a job that reads from it live in another system; name a Kafka system or "
            f"local, the embedded one"
        )
        return
    for store in Settings.of(config).store_names:
        where = named_changelog_system(store, config)
        if where is not None and where != named:
            yield (
                f"stores.{store}.changelog is on system {where!r} and the checkpoints are on {named!r}: state and "
                f"checkpoint are committed together, so name {CHECKPOINTS} in stores.{store}.changelog, or no system"
            )
    if "app.class" in config:
        yield (
            f"app.class: a DataFrame pipeline cannot read system {system!r} in this version; write a "
            f"grete.StreamTask (task.class), or read the hub through a system of kind kafka"
        )


def named_changelog_system(store: str, config: Mapping[str, str]) -> str | None:
    """The system of a store's changelog, when the store or the job names one."""
    default = config.get("job.changelog.system")
    is_named = "." in config.get(f"stores.{store}.changelog", "") or default
    return Settings.of(config).store(store).changelog_system if is_named else None


def known_streams(config: Mapping[str, str], system: str) -> list[str]:
    """Every stream of a system that the configuration knows, sorted: by its id, or as input or output."""
    by_id = {physical_name(config, id_) for id_ in stream_ids(config) if stream_system(config, id_) == system}
    return sorted(by_id | _streams(config, system))


def _streams(config: Mapping[str, str], system: str) -> set[str]:
    written = [name.strip() for name in config.get("task.outputs", "").split(",") if "." in name]
    both = [*_inputs(config), *map(system_stream_from_names, written)]
    return {stream.stream for stream in both if stream.system == system}


def _inputs(config: Mapping[str, str]) -> tuple[SystemStream, ...]:
    try:
        return Settings.of(config).task.all_inputs
    except ConfigError:
        return ()  # of another form than system.stream: said elsewhere


def _stream_problems(config: Mapping[str, str], system: str, stream: str) -> Iterator[str]:
    try:
        id_ = stream_id_of(config, SystemStream(system, stream)) or stream
    except ConfigError:
        return  # several ids are mapped to it: said elsewhere
    if not _client(config, system, "bootstrap.servers") and _host(config, system, stream) is None:
        yield f"Missing {keys.NAMESPACE.name % id_}: the Event Hubs namespace of {system}.{stream}"
    if _client(config, system, "sasl.jaas.config"):
        return
    token = _get(config, system, stream, keys.SAS_TOKEN.name)
    if token is None:
        yield (
            f"Missing {keys.SAS_TOKEN.name % id_}: the key of the shared access policy of {system}.{stream}; write a "
            f"reference such as ${{env:NAME}} or ${{file:/path}}"
        )
    elif _get(config, system, stream, keys.SAS_KEY_NAME.name) is None and _is_bare_key(token):
        yield (
            f"Missing {keys.SAS_KEY_NAME.name % id_}: the shared access policy of {system}.{stream}, or write a "
            f"whole connection string into {keys.SAS_TOKEN.name % id_}"
        )


def _is_bare_key(token: str) -> bool:
    """Whether a key needs its policy beside it; what a reference stands for is seen when it is resolved."""
    return not has_reference(token) and not token.startswith(_WHOLE)


def _client(config: Mapping[str, str], system: str, name: str) -> bool:
    return any(config.get(f"systems.{system}.{client}.{name}") for client in ("consumer", "producer"))
