"""How ZooKeeper is reached: addresses, time limits, login, TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grete.config.choices import SaslMechanism
from grete.config.key_tables import zookeeper as keys
from grete.config.secrets import resolve_secrets
from grete.config.settings.zookeeper import ZooKeeperSection
from grete.coordination.zookeeper.tickets import check_tickets_can_be_used
from grete.errors import ConfigError

LOGIN_KEYS = f"{keys.USER.name}, {keys.PASSWORD.name}, {keys.MECHANISM.name}"
TLS_KEYS = f"{keys.TRUSTSTORE.name}, {keys.VERIFY_HOSTNAME.name}, {keys.KEYSTORE.name}"


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """`servers` as `host:port[,host:port][/path]`. `session_s` is asked for; a server may grant another time.

    `client` are kazoo's arguments for login and TLS, secrets resolved.
    """

    servers: str
    session_s: float
    connect_s: float = 60.0
    is_owned: bool = False
    """Whether nodes belong to the user who makes them; else anybody may change them."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)


def zookeeper_settings(section: ZooKeeperSection, *, ttl_s: float) -> ZooKeeperSettings:
    """The settings of a configuration. A session lasts as long as the lease, unless its key is set.

    Raises:
        ConfigError: no addresses, half of a login, a reference to nothing, or GSSAPI without its module.
    """
    problems = list(section.problems())
    if problems:
        raise ConfigError(*problems)
    assert section.connect, "a problem otherwise"
    session_s = section.session_ms / 1000 if section.session_ms is not None else ttl_s
    return ZooKeeperSettings(
        section.connect,
        session_s,
        section.connection_ms / 1000,
        bool(section.user or section.mechanism),
        {**_login(section), **_tls(section)},
    )


def _login(section: ZooKeeperSection) -> dict[str, Any]:
    if section.mechanism is SaslMechanism.GSSAPI:
        check_tickets_can_be_used()
        return {"sasl_options": {"mechanism": section.mechanism.value}}
    if not section.user or not section.password:
        return {}
    user, password = resolve_secrets(section.user), resolve_secrets(section.password)
    if section.mechanism is None:
        return {"auth_data": [("digest", f"{user}:{password}")]}
    return {"sasl_options": {"mechanism": section.mechanism.value, "username": user, "password": password}}


def _tls(section: ZooKeeperSection) -> dict[str, Any]:
    if not section.uses_tls:
        return {}
    password = section.keystore_password
    return {
        "use_ssl": True,
        "ca": section.truststore,
        "check_hostname": section.verifies_hostname,
        "certfile": section.keystore,
        "keyfile": section.keystore,
        "keyfile_password": None if password is None else resolve_secrets(password),
    }
