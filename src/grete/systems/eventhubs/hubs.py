"""The hubs of a system on Event Hubs: where each is, and connections that streams with one login share."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from grete.clock import Clock
from grete.config.key_tables.streams import SYSTEM_OTHER
from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.kafka.client import KafkaConnection
from grete.kafka.login import SettingsOrigin, client_settings, settings_origin
from grete.kafka.ranges import RangeReader
from grete.kafka.topics import TopicInfo, Topics

_TIMEOUT_S = 30.0
_IDLE_MS = 180_000
"""The service closes connections that were idle for four minutes; a client that does not know loses a request."""


class Namespace:
    """A connection to a namespace's Kafka endpoint, under one shared access policy."""

    def __init__(self, system: str, client: Mapping[str, str], origin: SettingsOrigin, clock: Clock) -> None:
        fixed = {"connections.max.idle.ms": str(_IDLE_MS), "metadata.max.age.ms": str(_IDLE_MS)}
        self.connection = KafkaConnection({**fixed, **client}, _TIMEOUT_S, clock, origin)
        self.connection.await_login(f"opening system {system!r}")
        self.topics = Topics(self.connection, system, clock)
        self.ranges = RangeReader(self.connection, clock)


@dataclass(frozen=True, slots=True)
class Hub:
    """A stream's hub."""

    stream: str
    topic: str
    namespace: Namespace

    def info(self) -> TopicInfo:
        """The hub as the service describes it.

        Raises:
            StreamNotFound: there is none of its name.
            StreamError: no answer.
        """
        found = self.namespace.topics.find(self.topic)
        if found is None:
            raise StreamNotFound(
                f"there is no hub {self.topic!r} (stream {self.stream!r}) on {self.namespace.connection.servers}; "
                f"hubs are made with Azure's tools: {create_command(self.topic, 4)}"
            )
        return found


def create_command(topic: str, partitions: int) -> str:
    """How a hub is made, for errors."""
    return (
        f"az eventhubs eventhub create --resource-group GROUP --namespace-name NAMESPACE --name {topic} "
        f"--partition-count {partitions}"
    )


class Hubs:
    """The hubs of one system of a configuration. Connections are opened when a hub is first needed."""

    def __init__(self, settings: Settings, system: str, clock: Clock) -> None:
        self._settings = settings
        self._system = system
        self._clock = clock
        self._lock = threading.RLock()
        self._namespaces: dict[tuple[tuple[str, str], ...], Namespace] = {}
        self._hubs: dict[str, Hub] = {}

    def of(self, stream: str) -> Hub:
        """The hub behind a stream.

        Raises:
            ConfigError: the configuration does not say where it is or how to get in.
            LoginRefused: the service does not let us in.
            LogError: no answer.
        """
        with self._lock:
            if stream not in self._hubs:
                address = self._settings.hubs(self._system).address(stream)
                client, origin = self._client(address.client), self._origin(address.origins)
                self._hubs[stream] = Hub(stream, address.topic, self._namespace(client, origin))
            return self._hubs[stream]

    def _client(self, derived: Mapping[str, str]) -> dict[str, str]:
        """Settings from Samza's keys of the hub, overridden by the system's for Kafka clients."""
        servers = derived.get("bootstrap.servers", "")
        key = SYSTEM_OTHER.named(self._system, "consumer.bootstrap.servers")
        standing_in = {key: servers} if servers else {}
        return {**derived, **client_settings({**standing_in, **self._settings.raw}, self._system)}

    def _origin(self, derived: Mapping[str, str]) -> SettingsOrigin:
        return SettingsOrigin(
            self._system, {**derived, **settings_origin(self._settings.raw, self._system).keys}
        )

    def _namespace(self, client: Mapping[str, str], origin: SettingsOrigin) -> Namespace:
        key = tuple(sorted(client.items()))
        if key not in self._namespaces:
            self._namespaces[key] = Namespace(self._system, client, origin, self._clock)
        return self._namespaces[key]

    def names(self) -> list[str]:
        """The streams of all namespaces that the configuration names, sorted: by their own names where they have any.

        Raises:
            StreamError: no answer.
        """
        hubs = [self.of(stream) for stream in self._settings.hubs(self._system).known_streams()]
        found: set[str] = set()
        for namespace in {hub.namespace for hub in hubs}:
            named = {hub.topic: hub.stream for hub in hubs if hub.namespace is namespace}
            found |= {named.get(topic, topic) for topic in namespace.topics.names()}
        return sorted(found)

    def close(self) -> None:
        """Close the readers and connections."""
        with self._lock:
            for namespace in self._namespaces.values():
                namespace.ranges.close()
                namespace.connection.close()
            self._namespaces.clear()
            self._hubs.clear()
