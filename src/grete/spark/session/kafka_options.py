"""Options of Spark's Kafka connector from `systems.<system>.consumer.*` and `.producer.*`, in Java's own names.

The connector runs Java clients, so what Samza's configuration says is passed on as it is: where the brokers are and
how to get in is the same for both clients (as for our own, `client_settings`: the producer's word wins), what tunes a
client is that client's. What decides about delivery is not the configuration's to say: the source reads committed
records only, the sink waits for every copy.

References to secrets are resolved here, just before the query is defined, and the result lives in the options of the
reader and the writer alone: `REDACTED_OPTIONS` keeps it out of plans, pages and event logs, and Spark's checkpoint
has no options in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.config.redact import is_reference
from grete.config.secrets import has_reference, resolve_secrets
from grete.config.settings import Settings
from grete.config.settings.systems import SystemSettings, client_properties
from grete.errors import ConfigError
from grete.model.ids import SystemStream

REDACTED_OPTIONS = r"(?i)url|^kafka\.(sasl|ssl)\.|secret|passw|token|credential|jaas"
"""For `spark.sql.redaction.options.regex`: Spark's default, and all options of a login."""
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_ACCESS = re.compile(r"(security|sasl|ssl)\..+|bootstrap\.servers")
_NOT_PASSED = re.compile(
    r"(key|value)\.(de)?serializer|auto\.offset\.reset|enable\.auto\.commit|auto\.commit\..*|interceptor\.classes"
    r"|group\.id|group\.instance\.id|isolation\.level|acks|enable\.idempotence|transactional\.id|zookeeper\.connect"
    r"|request\.required\.acks|producer\.type"
)
"""Options that Spark refuses, that would weaken a promise, or that only Samza's old clients understood."""


_HUB = {"connections.max.idle.ms": "180000", "metadata.max.age.ms": "180000"}
"""The service closes connections that were idle for four minutes."""
_HUB_SINK = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "false",  # not on every tier; a record that is sent again may be there twice
    "kafka.max.in.flight.requests.per.connection": "1",  # else it could overtake its successor
}


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """The topic that a stream is to the connector, and the client settings that are the stream's own."""

    topic: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, settings: Settings, stream: SystemStream) -> StreamAddress:
        """By the stream's keys where its system is configured by streams.

        Raises:
            ConfigError: they do not say where it is or how to get in.
        """
        if not settings.system(stream.system).capabilities.configured_by_streams:
            return cls(stream.stream)
        hub = settings.hubs(stream.system).address(stream.stream)
        client = {**_HUB, **hub.client}
        if "sasl.password" in client:
            user, password = (_escaped(client.pop(f"sasl.{word}")) for word in ("username", "password"))
            client["sasl.jaas.config"] = f'{_PLAIN} required username="{user}" password="{password}";'
        return cls(hub.topic, client)


def source_settings(settings: Settings, system: str, address: StreamAddress | None = None) -> dict[str, str]:
    """The source's `kafka.*` options, references resolved.

    Raises:
        ConfigError: no brokers are named, or a reference refers to nothing.
    """
    return _options(settings, system, "consumer", address) | {"kafka.isolation.level": "read_committed"}


def sink_settings(settings: Settings, system: str, address: StreamAddress | None = None) -> dict[str, str]:
    """The sink's `kafka.*` options, references resolved: a record counts as written when all copies have it.

    Raises:
        ConfigError: as for the source.
    """
    found = _options(settings, system, "producer", address)
    if address is None or not address.client:
        return found | {"kafka.acks": "all", "kafka.enable.idempotence": "true"}
    largest = settings.hubs(system).largest_record
    return found | _HUB_SINK | ({"kafka.max.request.size": str(largest)} if largest > 0 else {})


def _options(settings: Settings, system: str, client: str, address: StreamAddress | None) -> dict[str, str]:
    given = {which: _properties(settings.system(system), which) for which in ("consumer", "producer")}
    access = {
        name: value for each in given.values() for name, value in each.items() if _ACCESS.fullmatch(name)
    }
    own = {} if address is None else address.client
    if not (access.get("bootstrap.servers") or own.get("bootstrap.servers", "")).strip():
        raise ConfigError(
            f"systems.{system}.producer.bootstrap.servers is not set: name the Kafka brokers of system {system!r}, "
            "host:port[,host:port]"
        )
    resolved = {name: _resolved(name, value) for name, value in (given[client] | access).items()}
    return {f"kafka.{name}": value for name, value in {**own, **resolved}.items()}


def _properties(system: SystemSettings, client: str) -> dict[str, str]:
    named = client_properties(system.raw, system.name, client)
    return {name: value for name, value in named.items() if not _NOT_PASSED.fullmatch(name)}


def _resolved(name: str, value: str) -> str:
    """The value without references. Inside a JAAS line a password is quoted as that line's syntax wants it."""
    if not name.endswith("sasl.jaas.config") or is_reference(value):
        return resolve_secrets(value)
    return re.sub(r"\$\{[^{}]*\}", lambda match: _quoted(match[0]), value)


def _quoted(reference: str) -> str:
    if not has_reference(reference):
        return reference
    return _escaped(resolve_secrets(reference))


def _escaped(text: str) -> str:
    """A word of a JAAS line, within its quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
