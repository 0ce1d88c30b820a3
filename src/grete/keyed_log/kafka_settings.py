"""What the Kafka keyed log needs to know, and how a Samza configuration says it.

Samza gives its Java clients `systems.<system>.consumer.*` and `systems.<system>.producer.*`. What tells where the
brokers are and how to get in is taken over under librdkafka's names; what tunes a Java client (serializers, batches,
acks, groups) has no meaning here, since the log decides about its own delivery, and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.config.key import Key
from grete.config.key_tables import coordinator, task
from grete.config.secrets import resolve_secrets
from grete.errors import ConfigError

_SAME = (
    "bootstrap.servers",
    "client.id",
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
)
_JAAS_USER = re.compile(r"""\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)""")


@dataclass(frozen=True, slots=True)
class KafkaLogSettings:
    """How to reach the brokers (librdkafka's names, secrets resolved), and how the topic is made (S2-54, S2-55).

    `timeout_s` bounds every call of the log: within it brokers may go and come back. `transaction_timeout_s` is how
    long a writer that was paused inside an append holds back readers before the broker aborts it.
    """

    client: Mapping[str, str] = field(repr=False)
    replication_factor: int = 3
    segment_bytes: int = 26_214_400
    max_message_bytes: int = 1_000_012
    timeout_s: float = 30.0
    transaction_timeout_s: float = 10.0
    size_key: str = coordinator.MAX_MESSAGE_BYTES.name
    replication_key: str = coordinator.REPLICATION.name


def coordinator_log_settings(config: Mapping[str, str], system: str) -> KafkaLogSettings:
    """Settings of the coordinator stream on the system `system`.

    Raises:
        ConfigError: no brokers, a security setting that only Java can use, or a number that is none.
    """
    return _settings(
        config, system, coordinator.REPLICATION, coordinator.SEGMENT_BYTES, coordinator.MAX_MESSAGE_BYTES
    )


def checkpoint_log_settings(config: Mapping[str, str], system: str) -> KafkaLogSettings:
    """Settings of the checkpoint log on the system `system`.

    Raises:
        ConfigError: as for the coordinator stream.
    """
    return _settings(
        config, system, task.CHECKPOINT_REPLICATION, task.CHECKPOINT_SEGMENT, task.CHECKPOINT_MESSAGE
    )


def _settings(
    config: Mapping[str, str], system: str, copies: Key[int], segment: Key[int], largest: Key[int]
) -> KafkaLogSettings:
    return KafkaLogSettings(
        client_settings(config, system),
        replication_factor=_number(config, copies),
        segment_bytes=_number(config, segment),
        max_message_bytes=_number(config, largest),
        size_key=largest.name,
        replication_key=copies.name,
    )


def _number(config: Mapping[str, str], key: Key[int]) -> int:
    """The key's value, else that of the key that stands in for it, else its default (S2-54: in this order)."""
    name = next((name for name in (key.name, *key.fallbacks) if name in config), None)
    text = key.default if name is None else config[name]
    assert text is not None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name}={text!r} must be a whole number of one or more")
    return number


def client_settings(config: Mapping[str, str], system: str) -> dict[str, str]:
    """librdkafka's settings for a system, references to secrets resolved. The producer's win over the consumer's.

    Raises:
        ConfigError: no `bootstrap.servers`, or a key store in Java's own format.
    """
    java: dict[str, str] = {}
    for client in ("consumer", "producer"):
        prefix = f"systems.{system}.{client}."
        java |= {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix)}
    if not java.get("bootstrap.servers", "").strip():
        raise ConfigError(
            f"systems.{system}.producer.bootstrap.servers is not set: name the Kafka brokers of system {system!r}, "
            "host:port[,host:port]"
        )
    java = {name: resolve_secrets(value) for name, value in java.items()}
    settings = {name: java[name] for name in _SAME if name in java}
    return settings | _login(java, system) | _stores(java, system)


def _login(java: Mapping[str, str], system: str) -> dict[str, str]:
    """User and password of `sasl.jaas.config`, the only part of it that is not Java."""
    jaas = java.get("sasl.jaas.config")
    if jaas is None:
        return {}
    found = {name: text.strip('"').replace('\\"', '"') for name, text in _JAAS_USER.findall(jaas)}
    if set(found) != {"username", "password"}:
        raise ConfigError(
            f"systems.{system}: sasl.jaas.config has no username and password; only login modules that take these "
            "two (PLAIN, SCRAM) can be used outside Java"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _stores(java: Mapping[str, str], system: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for store, names in (("truststore", ("ssl.ca",)), ("keystore", ("ssl.certificate", "ssl.key"))):
        if f"ssl.{store}.location" not in java:
            continue
        if java.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise ConfigError(
                f"systems.{system}: ssl.{store}.location is a key store in Java's format; export it as PEM and set "
                f"ssl.{store}.type=PEM, which Java clients read as well"
            )
        settings |= {f"{name}.location": java[f"ssl.{store}.location"] for name in names}
    if "ssl.truststore.certificates" in java:
        settings["ssl.ca.pem"] = java["ssl.truststore.certificates"]
    return settings
