"""A ZooKeeper server of `grete.testing.zookeeper_server` with a second port: TLS, users by SASL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.certificates import Authority

from grete.testing.zookeeper_server import ZooKeeperCluster, ZooKeeperNode

_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
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
