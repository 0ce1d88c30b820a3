"""Settings of systems on Azure Event Hubs, in Samza's keys, for their Kafka endpoint.

A hub is a topic of its namespace's endpoint, port 9093, through SASL_SSL. The user is always `$ConnectionString`, the
password a connection string that names a shared access policy and its key. Whatever `systems.<system>.consumer.*` and
`.producer.*` say of brokers and logins goes before: for other clouds, private endpoints and emulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grete.config.key import Key
from grete.config.key_tables import eventhubs as keys
from grete.config.secrets import has_reference, resolve_secrets
from grete.config.settings.section import NamedSection, Setting
from grete.config.settings.streams import (
    physical_name,
    stream_id_of,
    stream_ids,
    stream_system,
    system_stream_from_names,
)
from grete.config.settings.tasks import TaskSettings
from grete.errors import ConfigError
from grete.model.ids import SystemStream

USER = "$ConnectionString"
_CLOUD = ".servicebus.windows.net"
_PORT = 9093
_WHOLE = "Endpoint="


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where a hub is and how to get in, as settings of a Kafka client; references to secrets are resolved."""

    topic: str
    client: Mapping[str, str] = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)
    """The key of the configuration behind each setting that is not the system's own."""


class HubsSettings(NamedSection):
    """`systems.<name>.eventhubs.*`, and its streams' `streams.<id>.eventhubs.*`."""

    largest_record = Setting(keys.LARGEST)
    """In bytes; 0 and less is no limit."""
    sends_keys = Setting(keys.SEND_KEY)
    partitioning = Setting(keys.PARTITION_METHOD)

    def address(self, stream: str) -> HubAddress:
        """The hub behind a stream. `client` is overlaid by the system's own client settings, if there are any.

        Raises:
            ConfigError: namespace, policy or key are not set, or a reference cannot be resolved.
        """
        problems = list(self.problems(stream))
        if problems:
            raise ConfigError(*problems)
        client, origins = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, {}
        host = self._host(stream)
        if host is not None:
            client["bootstrap.servers"] = f"{host}:{_PORT}"
            origins["bootstrap.servers"] = self._key(stream, keys.NAMESPACE)
        token = self._get(stream, keys.SAS_TOKEN)
        if token is not None:
            policy = self._get(stream, keys.SAS_KEY_NAME) or ""
            origins["sasl.password"] = self._key(stream, keys.SAS_TOKEN)
            try:
                client |= {"sasl.username": USER, "sasl.password": _connection(host or "", policy, token)}
            except ConfigError as error:
                raise ConfigError(f"{origins['sasl.password']}: {error}") from error
        return HubAddress(self._get(stream, keys.ENTITY_PATH) or stream, client, origins)

    def problems(self, stream: str) -> Iterator[str]:
        """The settings that a stream lacks, each with the way out."""
        try:
            id_ = stream_id_of(self.raw, SystemStream(self.name, stream)) or stream
        except ConfigError:
            return  # several ids are mapped to it: another rule says so
        if not self._client("bootstrap.servers") and self._host(stream) is None:
            yield f"Missing {keys.NAMESPACE.named(id_)}: the Event Hubs namespace of {self.name}.{stream}"
        if self._client("sasl.jaas.config"):
            return
        token = self._get(stream, keys.SAS_TOKEN)
        if token is None:
            yield (
                f"Missing {keys.SAS_TOKEN.named(id_)}: the key of the shared access policy of {self.name}.{stream}; "
                f"write a reference such as ${{env:NAME}} or ${{file:/path}}"
            )
        elif self._get(stream, keys.SAS_KEY_NAME) is None and _is_bare_key(token):
            yield (
                f"Missing {keys.SAS_KEY_NAME.named(id_)}: the shared access policy of {self.name}.{stream}, or write "
                f"a whole connection string into {keys.SAS_TOKEN.named(id_)}"
            )

    def known_streams(self) -> list[str]:
        """Every stream of the system that the configuration knows, sorted: by its id, or as input or output."""
        ids = (id_ for id_ in stream_ids(self.raw) if stream_system(self.raw, id_) == self.name)
        return sorted({physical_name(self.raw, id_) for id_ in ids} | self.used_streams())

    def used_streams(self) -> set[str]:
        """Those that are inputs or outputs; names that are none are left to validation."""
        task = TaskSettings(self.raw)
        try:
            inputs: tuple[SystemStream, ...] = task.all_inputs
        except ConfigError:
            inputs = ()
        written = (name for name in task.output_names if "." in name)
        both = (*inputs, *map(system_stream_from_names, written))
        return {stream.stream for stream in both if stream.system == self.name}

    def _host(self, stream: str) -> str | None:
        namespace = self._get(stream, keys.NAMESPACE)
        if namespace is None:
            return None
        return namespace if "." in namespace else f"{namespace}{_CLOUD}"

    def _key(self, stream: str, key: Key[str]) -> str:
        """The key that is set: of the stream's id, else of the stream itself (EventHubConfig's order)."""
        own = key.named(stream_id_of(self.raw, SystemStream(self.name, stream)) or stream)
        return own if own in self.raw else key.named(stream) if key.named(stream) in self.raw else own

    def _get(self, stream: str, key: Key[str]) -> str | None:
        return self.raw.get(self._key(stream, key), "").strip() or None

    def _client(self, name: str) -> bool:
        return any(
            self.raw.get(f"systems.{self.name}.{client}.{name}") for client in ("consumer", "producer")
        )


def _connection(host: str, policy: str, token: str) -> str:
    key = resolve_secrets(token)
    if key.startswith(_WHOLE):
        return key
    if not policy:
        raise ConfigError("the key of a shared access policy is set, and not the policy's name")
    return f"Endpoint=sb://{host}/;SharedAccessKeyName={resolve_secrets(policy)};SharedAccessKey={key}"


def _is_bare_key(token: str) -> bool:
    """Whether a key needs its policy beside it; what a reference stands for is seen when it is resolved."""
    return not has_reference(token) and not token.startswith(_WHOLE)
