"""Brokers of `grete.testing.kafka_broker` with a SASL_SSL listener: users, passwords, a certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certificates import Authority

from grete.testing.kafka_broker import KafkaCluster, KafkaNode

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """Users of SASL_SSL, and the certificate that the brokers show.

    `users` get in by PLAIN, `scram_users` by SCRAM-SHA-256, which a broker learns when it is formatted. With
    `transactional_users` these may everything, and all others what access control lists grant them: none of them has
    transactions, as none on Event Hubs. Users of other listeners may everything.
    """

    authority: Authority
    users: Mapping[str, str] = field(repr=False)
    scram_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    transactional_users: Sequence[str] = ()

    def properties(self) -> dict[str, str]:
        """Properties of the brokers beside the listener itself, escaped as Java needs it."""
        known = " ".join(f"user_{name}={_quoted(password)}" for name, password in self.users.items())
        of_listener = "listener.name.sasl_ssl."
        settings = {
            f"{of_listener}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            f"{of_listener}plain.sasl.jaas.config": _escaped(f"{_PLAIN} required {known};"),
            f"{of_listener}scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
            f"{of_listener}ssl.keystore.type": "PKCS12",
            f"{of_listener}ssl.keystore.location": str(self.authority.keystore),
            f"{of_listener}ssl.keystore.password": self.authority.password,
            f"{of_listener}ssl.key.password": self.authority.password,
        }
        if self.transactional_users:
            settings["authorizer.class.name"] = _AUTHORIZER
            settings["super.users"] = ";".join(f"User:{n}" for n in ("ANONYMOUS", *self.transactional_users))
        return settings

    def format_options(self) -> Sequence[str]:
        """Metadata for the formatting of the brokers."""
        return [
            word
            for name, password in self.scram_users.items()
            for word in ("--add-scram", f"SCRAM-SHA-256=[name={name},password={password}]")
        ]


class SecureCluster(KafkaCluster):
    """A node with a third listener, SASL_SSL, for those whom `login` lets in."""

    def __init__(self, directory: Path, login: BrokerLogin, *, outlives_us: bool = False) -> None:
        super().__init__(directory, outlives_us=outlives_us)
        self.login = login

    @property
    def secure_bootstrap(self) -> str:
        """`bootstrap.servers` of clients that come in through SASL_SSL."""
        return ",".join(f"127.0.0.1:{node.further_port}" for node in self.nodes)

    def _format_options(self) -> Sequence[str]:
        return self.login.format_options()

    def _properties(self, node: KafkaNode) -> dict[str, str]:
        known = super()._properties(node)
        listener = f",SASL_SSL://127.0.0.1:{node.further_port}"
        return {
            **known,
            **self.login.properties(),
            "listeners": known["listeners"] + listener,
            "advertised.listeners": known["advertised.listeners"] + listener,
            "listener.security.protocol.map": known["listener.security.protocol.map"] + ",SASL_SSL:SASL_SSL",
        }


def _quoted(text: str) -> str:
    """A word of a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\")
