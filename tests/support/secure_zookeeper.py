"""ZooKeeper servers of `grete_workbench.zookeeper_server` that let users in by SASL: passwords or tickets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.kerberos import Kerberos

from grete_workbench.zookeeper_server import ZooKeeperCluster, ZooKeeperNode

_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_TICKETS = "com.sun.security.auth.module.Krb5LoginModule"
_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


class SecureZooKeeper(ZooKeeperCluster):
    """A node whose `further_port` speaks TLS. `users` and their passwords get in by DIGEST-MD5, on either port."""

    def __init__(
        self, directory: Path, authority: Authority, users: Mapping[str, str], *, outlives_us: bool = False
    ) -> None:
        super().__init__(directory, outlives_us=outlives_us)
        self.authority = authority
        self._users = users

    @property
    def secure(self) -> str:
        """`job.coordinator.zk.connect` of clients that come by TLS."""
        return f"127.0.0.1:{self.nodes[0].further_port}"

    def _configuration(self, node: ZooKeeperNode) -> dict[str, str]:
        return {
            **super()._configuration(node),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(node.further_port),
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(self.authority.keystore),
            "ssl.keyStore.type": "PKCS12",
            "ssl.keyStore.password": self.authority.password,
            "ssl.clientAuth": "none",
            "authProvider.sasl": _PROVIDER,
        }

    def _prepare(self, node: ZooKeeperNode) -> None:
        super()._prepare(node)
        known = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        (node.directory / "jaas.conf").write_text(f"Server {{ {_LOGIN} required {known}; }};\n")

    def _java_options(self, node: ZooKeeperNode) -> Sequence[str]:
        return (f"-Djava.security.auth.login.config={node.directory / 'jaas.conf'}",)


class TicketZooKeeper(ZooKeeperCluster):
    """A node that lets in principals of a realm, and those who say nothing. It is `zookeeper/localhost` there."""

    def __init__(self, directory: Path, realm: Kerberos) -> None:
        super().__init__(directory)
        self._realm = realm
        self._principal = "zookeeper/localhost"
        self._keytab = realm.add(self._principal)

    def _configuration(self, node: ZooKeeperNode) -> dict[str, str]:
        return {**super()._configuration(node), "authProvider.sasl": _PROVIDER}

    def _prepare(self, node: ZooKeeperNode) -> None:
        super()._prepare(node)
        known = f'useKeyTab=true storeKey=true keyTab="{self._keytab}" principal="{self._principal}"'
        (node.directory / "jaas.conf").write_text(f"Server {{ {_TICKETS} required {known}; }};\n")

    def _java_options(self, node: ZooKeeperNode) -> Sequence[str]:
        return (
            f"-Djava.security.auth.login.config={node.directory / 'jaas.conf'}",
            f"-Djava.security.krb5.conf={self._realm.configuration}",
        )
