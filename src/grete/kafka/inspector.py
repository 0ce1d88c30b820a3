"""Looking at a Kafka cluster without changing anything: brokers, topics, rights, and logs that exist already.

For `grete doctor` and `grete migrate`. `KafkaKeyedLog` makes its topic when it is not there; nothing here does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from grete.clock import Clock
from grete.config.settings import Settings
from grete.kafka.errors import done, reason_of, translated
from grete.kafka.library import ConfigResource, KafkaError, KafkaException, ResourceType, TopicCollection
from grete.kafka.log_clients import KafkaClients
from grete.kafka.settings import coordinator_log_settings
from grete.kafka.topics import GONE

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The brokers of a cluster, and the settings in force of one of them; empty when they may not be looked at."""

    count: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is. `copies` and `in_sync` are the least that a partition has, `rights` what this user may do."""

    name: str
    partitions: int
    copies: int
    in_sync: int
    leaderless: int
    rights: frozenset[str]
    config: Mapping[str, str]


class KafkaInspector:
    """One Kafka system of a configuration, looked at. Every call waits 10 s at most.

    Raises:
        ConfigError: a setting that cannot be used.
        LogError: from every method, when brokers do not answer or refuse.
    """

    def __init__(self, settings: Settings, system: str, clock: Clock) -> None:
        self._settings = replace(coordinator_log_settings(settings, system), timeout_s=_TIMEOUT_S)
        self._clock = clock
        self._clients = KafkaClients("", self._settings, clock)

    @property
    def transaction_timeout_s(self) -> float:
        """How long the log's transactions may stay open."""
        return self._settings.transaction_timeout_s

    def brokers(self) -> BrokerFacts:
        """The brokers that there are."""
        admin = self._clients.admin
        with translated(f"asking {self._settings.client['bootstrap.servers']} for its brokers"):
            found = admin.list_topics(timeout=_TIMEOUT_S).brokers
            return BrokerFacts(len(found), self._config(ConfigResource(ResourceType.BROKER, str(min(found)))))

    def topic(self, name: str) -> TopicFacts | None:
        """A topic, None when it is not there."""
        with translated(f"looking at topic {name}"):
            try:
                found = self._describe(name)
            except KafkaException as error:
                if reason_of(error).code() in GONE:
                    return None
                raise
            rights = frozenset(operation.name for operation in found.authorized_operations or ())
            return TopicFacts(
                name,
                partitions=len(found.partitions),
                copies=min((len(each.replicas) for each in found.partitions), default=0),
                in_sync=min((len(each.isr) for each in found.partitions), default=0),
                leaderless=sum(each.leader is None for each in found.partitions),
                rights=rights,
                config=self._config(ConfigResource(ResourceType.TOPIC, name)),
            )

    def _describe(self, name: str) -> Any:
        futures = self._clients.admin.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=_TIMEOUT_S
        )
        return done(futures[name], _TIMEOUT_S + 1)

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        """The settings in force; none where they may not be looked at."""
        futures = self._clients.admin.describe_configs([resource], request_timeout=_TIMEOUT_S)
        try:
            entries: dict[str, Any] = done(futures[resource], _TIMEOUT_S + 1)
        except KafkaException as error:
            refused = (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
            if reason_of(error).code() in refused:
                return {}
            raise
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def open_transaction(self, transactional_id: str) -> None:
        """Open a transactional id, which writes nothing; the broker forgets it after a week.

        Raises:
            LogError: it may not be opened, or no coordinator of transactions answers.
        """
        producer = self._clients.producer(transactional_id)
        with translated(f"opening the transactional id {transactional_id}"):
            producer.init_transactions(_TIMEOUT_S)

    def clients(self, name: str) -> KafkaClients:
        """Clients for the topic of a log that is there."""
        return KafkaClients(name, self._settings, self._clock)
