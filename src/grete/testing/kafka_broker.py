"""Kafka brokers on loopback for tests: one node or three, of jars that `make services` has fetched.

KRaft, each node broker and controller at once, 256 MB of heap, ports that were free. Every node has a second
listener, `PROXIED`, that redirects clients to `proxied_port`, where a proxy may listen.

    python -m grete.testing.kafka_broker start DIRECTORY [--nodes 3]     prints the bootstrap servers
    python -m grete.testing.kafka_broker stop DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grete.testing import server_cluster
from grete.testing.server_cluster import ServerCluster, ServerFailed, ServerNode, command_line, java

VERSION = "4.3.1"
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_ARCHIVE = "broker.jsa"
"""Classes of these jars as `make services` has archived them."""
_SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""For few resources and short tests: the cleaner looks every 100 ms, transactions are timed out within
20 ms, so that a broker that comes back does so before its partitions have leaders, which it does not do well.
Nothing is deleted for its age: records of tests are from 1970, and brokers look half a minute after their start."""


def jars_directory() -> Path:
    """Where `make services` puts the jars: `GRETE_KAFKA_JARS`, else a folder of the user's cache."""
    return server_cluster.jars_directory("GRETE_KAFKA_JARS", f"kafka-{VERSION}")


@dataclass(frozen=True, slots=True)
class KafkaNode(ServerNode):
    """One node and where it listens. Clients that begin at `direct_port` never see `proxied_port`."""

    direct_port: int
    listener_port: int
    proxied_port: int
    controller_port: int
    further_port: int = 0
    """For a listener that a cluster has besides."""


class KafkaCluster(ServerCluster[KafkaNode]):
    """One node or several in `directory`, which `start` may find as an earlier run left it."""

    PORTS_PER_NODE: ClassVar[int] = 5

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of clients."""
        return ",".join(f"127.0.0.1:{node.direct_port}" for node in self.nodes)

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> KafkaNode:
        return KafkaNode(number, directory, *ports)

    def _prepare(self, node: KafkaNode) -> None:
        if not any(jars_directory().glob("kafka_2.13-*.jar")):
            raise ServerFailed(f"no Kafka jars in {jars_directory()}: run make services")
        properties = node.directory / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties(node).items()))
        if (node.directory / "log" / "meta.properties").exists():
            return
        words = ("-t", _CLUSTER, "-c", str(properties), *self._format_options())
        command = self._java("kafka.tools.StorageTool", "format", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        if done.returncode != 0:
            raise ServerFailed(f"formatting {node.directory} failed: {done.stdout}{done.stderr}")

    def _format_options(self) -> Sequence[str]:
        """Metadata for the formatting of nodes; for clusters with logins."""
        return ()

    def _properties(self, node: KafkaNode) -> dict[str, str]:
        count = len(self.nodes)
        copies = str(min(3, count))
        in_sync = str(min(2, count))
        at = "127.0.0.1"
        ports = {"PLAINTEXT": node.direct_port, "PROXIED": node.proxied_port}
        heard = {"PLAINTEXT": node.direct_port, "PROXIED": node.listener_port}
        protocols = dict.fromkeys(("CONTROLLER", *ports), "PLAINTEXT")

        def listeners(ports: Mapping[str, int]) -> str:
            return ",".join(f"{name}://{at}:{port}" for name, port in ports.items())

        return {
            "process.roles": "broker,controller",
            "node.id": str(node.number),
            "controller.quorum.voters": ",".join(
                f"{each.number}@{at}:{each.controller_port}" for each in self.nodes
            ),
            "listeners": listeners({**heard, "CONTROLLER": node.controller_port}),
            "advertised.listeners": listeners(ports),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
            "log.dirs": str(node.directory / "log"),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            **_SETTINGS,
            **self._settings,
        }

    def _java(self, *words: str) -> list[str]:
        archive = jars_directory() / _ARCHIVE
        sooner = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []
        return [java(), *_JVM, *sooner, "-cp", f"{jars_directory()}/*", *words]

    def _command(self, node: KafkaNode) -> list[str]:
        return self._java("kafka.Kafka", str(node.directory / "server.properties"))

    def _is_ready(self, node: KafkaNode) -> bool:
        return b"Kafka Server started" in node.log.read_bytes()


if __name__ == "__main__":
    sys.exit(command_line(KafkaCluster, "grete.testing.kafka_broker"))
