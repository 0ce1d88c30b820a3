"""ZooKeeper servers on loopback for tests: one node or an ensemble of three, of jars from `make services`.

Ticks of 500 ms and sessions of one second or more, 128 MB of heap, ports that were free, no admin server.

    python -m grete_workbench.zookeeper_server start DIRECTORY [--nodes 3]     prints the addresses for clients
    python -m grete_workbench.zookeeper_server stop DIRECTORY
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grete.testing import server_cluster
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, command_line, java

VERSION = "3.9.5"
_JVM = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_PROPERTIES = (
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=srvr",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_SETTINGS = {
    "tickTime": "500",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "initLimit": "20",
    "syncLimit": "8",
    "maxClientCnxns": "0",
    "clientPortAddress": "127.0.0.1",
}
_ANSWER_S = 1.0


def jars_directory() -> Path:
    """Where `make services` puts the jars: `GRETE_ZOOKEEPER_JARS`, else a folder of the user's cache."""
    return server_cluster.jars_directory("GRETE_ZOOKEEPER_JARS", f"zookeeper-{VERSION}")


@dataclass(frozen=True, slots=True)
class ZooKeeperNode(ServerNode):
    """One node and where it listens."""

    client_port: int
    peer_port: int
    election_port: int
    further_port: int
    """For a listener that a cluster has besides."""


class ZooKeeperCluster(ServerCluster[ZooKeeperNode]):
    """One node, or several that elect a leader among themselves. `settings` are lines of zoo.cfg."""

    PORTS_PER_NODE: ClassVar[int] = 4

    @property
    def bootstrap(self) -> str:
        """`job.coordinator.zk.connect` of clients."""
        return ",".join(f"127.0.0.1:{node.client_port}" for node in self.nodes)

    def leader(self) -> int | None:
        """The number of the node that leads the ensemble; None while it elects, and of a single node."""
        for node in self.nodes:
            if "Mode: leader" in _said(node):
                return node.number
        return None

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> ZooKeeperNode:
        return ZooKeeperNode(number, directory, *ports)

    def _prepare(self, node: ZooKeeperNode) -> None:
        if not any(jars_directory().glob("zookeeper-*.jar")):
            raise ServerFailed(f"no ZooKeeper jars in {jars_directory()}: run make services")
        data = node.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(node.number))
        configuration = "".join(f"{key}={value}\n" for key, value in self._configuration(node).items())
        (node.directory / "zoo.cfg").write_text(configuration)

    def _configuration(self, node: ZooKeeperNode) -> dict[str, str]:
        several = len(self.nodes) > 1
        return {
            **_SETTINGS,
            "dataDir": str(node.directory / "data"),
            "clientPort": str(node.client_port),
            **{
                f"server.{each.number}": f"127.0.0.1:{each.peer_port}:{each.election_port}"
                for each in (self.nodes if several else ())
            },
            **self._settings,
        }

    def _java_options(self, node: ZooKeeperNode) -> Sequence[str]:
        """Further options of the JVM; for clusters with logins."""
        return ()

    def _command(self, node: ZooKeeperNode) -> list[str]:
        options = (*_JVM, *_PROPERTIES, *self._java_options(node))
        return [java(), *options, "-cp", f"{jars_directory()}/*", _MAIN, str(node.directory / "zoo.cfg")]

    def _is_ready(self, node: ZooKeeperNode) -> bool:
        return "Mode: " in _said(node)


def _said(node: ZooKeeperNode) -> str:
    """The node's answer to "srvr"; empty while it has none."""
    said = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", node.client_port), _ANSWER_S) as asked:
        asked.settimeout(_ANSWER_S)
        asked.sendall(b"srvr")
        while part := asked.recv(4096):
            said += part
    return said.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(command_line(ZooKeeperCluster, "grete_workbench.zookeeper_server"))
