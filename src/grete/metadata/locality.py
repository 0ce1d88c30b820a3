"""Where containers run (Samza's LocalityManager)."""

from __future__ import annotations

from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId
from grete.model.messages import SET_CONTAINER_HOST


class LocalityManager:
    """Reads and writes `set-container-host-assignment`."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def write_locality(self, container: ContainerId, host: str) -> None:
        """Record that the container runs on `host`. Durable on return."""
        values = {"jmx-url": "", "host": host, "jmx-tunneling-url": ""}
        self._stream.append([self._stream.entry(SET_CONTAINER_HOST, container, values)])

    def read_locality(self) -> dict[ContainerId, str]:
        """The last host of each container."""
        hosts = self._stream.values(SET_CONTAINER_HOST)
        return {ContainerId(container): host for container, host in hosts.items()}
