"""How to reach a system's Kafka brokers and get in, from a Samza configuration into librdkafka's settings.

Samza gives its Java clients `systems.<system>.consumer.*` and `systems.<system>.producer.*`. Addresses and
logins are taken over here; what tunes a client is the matter of `grete.config.kafka_tuning`.
References to secrets are resolved here, by the process that opens a client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.config.kafka_old_names import SERVERS, old_names_of
from grete.config.key_tables.streams import SYSTEM_OTHER
from grete.config.secrets import has_reference, resolve_secrets
from grete.config.settings.systems import client_keys
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
_PEM = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_STORES = {"truststore": ("ssl.ca.location",), "keystore": ("ssl.certificate.location", "ssl.key.location")}
_JAVA = {
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    **{ours: java for java, ours in _PEM.items()},
}
_JAAS_USER = re.compile(
    r"""\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:\$\{[^{}]*\}|[^\s;"'])+)"""
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """Which system a client's settings are of, and which key of the configuration each was taken from."""

    system: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)

    def key(self, setting: str) -> str:
        """The key that holds a setting, or would hold it."""
        name = _JAVA.get(setting, setting)
        return self.keys.get(
            setting, SYSTEM_OTHER.named(self.system, f"producer.{name}") if self.system else name
        )


def client_settings(config: Mapping[str, str], system: str) -> dict[str, str]:
    """librdkafka's settings for a system, references to secrets resolved. The producer's win over the consumer's.

    Raises:
        ConfigError: no `bootstrap.servers`, a key store in Java's own format, or a reference to nothing.
    """
    java = {name: config[key] for name, key in _java_keys(config, system).items()}
    if not java.get("bootstrap.servers", "").strip():
        old = next(old_names_of(java, SERVERS), None)
        raise ConfigError(
            f"systems.{system}.producer.bootstrap.servers is not set: name the Kafka brokers of system {system!r}, "
            f"host:port[,host:port]{f'; {old} is its name before Kafka 0.9, rename the key' if old else ''}"
        )
    login = _login(java, system)
    java = {name: resolve_secrets(value) for name, value in java.items() if name != "sasl.jaas.config"}
    settings = {name: java[name] for name in _SAME if name in java}
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"  # what Java means by nothing
    pem = {ours: java[name] for name, ours in _PEM.items() if name in java}
    return settings | login | _stores(java, system) | pem


def settings_origin(config: Mapping[str, str], system: str) -> SettingsOrigin:
    """Where `client_settings` has each setting from."""
    java = _java_keys(config, system)
    names = {*_SAME, *_JAVA}
    keys = {name: java[_JAVA.get(name, name)] for name in names if _JAVA.get(name, name) in java}
    return SettingsOrigin(system, keys)


def _java_keys(config: Mapping[str, str], system: str) -> dict[str, str]:
    """The keys of a Java client's settings by their names there."""
    return client_keys(config, system, "consumer") | client_keys(config, system, "producer")


def _login(java: Mapping[str, str], system: str) -> dict[str, str]:
    """User and password of `sasl.jaas.config`, the only part of it that is not Java.

    The line is taken apart before references in it are resolved: a password may hold whatever ends a word there.
    """
    jaas = java.get("sasl.jaas.config")
    if jaas is None:
        return {}
    found = _JAAS_USER.findall(jaas)
    if not found and has_reference(jaas):
        found = _JAAS_USER.findall(resolve_secrets(jaas))
    words = {name: resolve_secrets(_unquoted(text)) for name, text in found}
    if set(words) != {"username", "password"}:
        raise ConfigError(
            f"systems.{system}: sasl.jaas.config has no username and password; only login modules that take these "
            "two (PLAIN, SCRAM) can be used outside Java"
        )
    return {"sasl.username": words["username"], "sasl.password": words["password"]}


def _unquoted(text: str) -> str:
    return _ESCAPED.sub(r"\1", text[1:-1]) if text[0] in "\"'" else text


def _stores(java: Mapping[str, str], system: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for store, names in _STORES.items():
        if f"ssl.{store}.location" not in java:
            continue
        if java.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise ConfigError(
                f"systems.{system}: ssl.{store}.location is a key store in Java's format; export it as PEM and set "
                f"ssl.{store}.type=PEM, which Java clients read as well"
            )
        settings |= dict.fromkeys(names, java[f"ssl.{store}.location"])
    return settings
