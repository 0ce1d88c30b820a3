"""The services that elect leaders, as a trial runs on them: started for it, or at an address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grete.testing.server_cluster import ServerCluster

Start = Callable[[Path], ServerCluster[Any]]


def _of_kafka(bootstrap: str) -> dict[str, str]:
    """The coordinator stream is there as well: the election goes with it."""
    return {
        "job.coordinator.system": "kafka",
        "job.coordinator.replication.factor": "1",
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.consumer.bootstrap.servers": bootstrap,
        "systems.kafka.producer.bootstrap.servers": bootstrap,
        "systems.local.samza.factory": "local",
    }


def _kafka(directory: Path) -> ServerCluster[Any]:
    from grete.testing.kafka_broker import KafkaCluster

    return KafkaCluster(directory)


def _of_kubernetes(kubeconfig: str) -> dict[str, str]:
    return {
        "job.coordinator.factory": "kubernetes",
        "job.coordinator.kubernetes.kubeconfig": kubeconfig,
    }


def _kubernetes(directory: Path) -> ServerCluster[Any]:
    from grete_workbench.kube_apiserver import KubeApiServer

    return KubeApiServer(directory)


def _of_azure(connection: str) -> dict[str, str]:
    return {"job.coordinator.factory": "azure", "azure.storage.connect": connection}


def _azure(directory: Path) -> ServerCluster[Any]:
    from grete_workbench.azurite import Azurite

    return Azurite(directory)


def _of_zookeeper(addresses: str) -> dict[str, str]:
    return {"job.coordinator.factory": "zookeeper", "job.coordinator.zk.connect": addresses}


def _zookeeper(directory: Path) -> ServerCluster[Any]:
    from grete_workbench.zookeeper_server import ZooKeeperCluster

    return ZooKeeperCluster(directory)


_SERVERS: Mapping[str, tuple[Start, Callable[[str], dict[str, str]]]] = {
    "azure": (_azure, _of_azure),
    "kafka": (_kafka, _of_kafka),
    "kubernetes": (_kubernetes, _of_kubernetes),
    "zookeeper": (_zookeeper, _of_zookeeper),
}
BACK_ENDS = ("sqlite", *_SERVERS)
"""Those that processes share; leadership in memory ends with its process."""
SHORTEST_TTL_S = {"azure": 15.0}
"""Where leases of less are refused."""


def job_settings(back_end: str, address: str) -> dict[str, str]:
    """A job's settings for leader election at an address, which is a server's `bootstrap`."""
    if back_end == "sqlite":
        return {}
    _, settings = _SERVERS[back_end]
    return settings(address)


@contextmanager
def settings_of(back_end: str, directory: Path, address: str | None = None) -> Iterator[dict[str, str]]:
    """A job's settings for leader election there; the server is started in `directory` unless `address` names one.

    Raises:
        ServerFailed: it could not be started.
    """
    if back_end not in _SERVERS or address is not None:
        yield job_settings(back_end, address or "")
        return
    start, settings = _SERVERS[back_end]
    server = start(directory)
    server.start()
    try:
        yield settings(server.bootstrap)
    finally:
        server.stop()
