"""Tells the coordinator that the container lives and how far it is; brings back what it is asked to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

from grete.errors import CoordinatorUnavailable, Fenced

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class ContainerProgress:
    """What a container reports of itself. `records` counts messages processed since it started."""

    state: str = "starting"
    batch_id: int = -1
    records: int = 0
    message: str = ""


class CoordinatorClient(Protocol):
    """What a heartbeat needs of the coordinator's HTTP client."""

    def heartbeat(self, container_id: str, body: dict[str, object]) -> str:
        """Send one; returns `continue` or `stop`.

        Raises:
            Fenced: the coordinator knows a newer incarnation of this container.
            CoordinatorUnavailable: it did not answer.
        """


class Heartbeat:
    """Sends a heartbeat a second from a thread of its own until closed."""

    def __init__(
        self,
        client: CoordinatorClient,
        container_id: str,
        epoch: int,
        *,
        on_stop: Callable[[], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._client = client
        self._container_id = container_id
        self._epoch = epoch
        self._on_stop = on_stop
        self._on_fenced = on_fenced
        self._progress = ContainerProgress()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def report(self, progress: ContainerProgress) -> None:
        """Set what the next heartbeat says."""
        self._progress = progress

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            self._send()

    def _send(self) -> None:
        body: dict[str, object] = {"epoch": self._epoch, **asdict(self._progress)}
        try:
            if self._client.heartbeat(self._container_id, body) == "stop":
                self._on_stop()
        except Fenced:
            self._on_fenced()
        except CoordinatorUnavailable as error:
            # Processing goes on: the commit's fence, not this thread, decides who may write.
            _log.debug("no answer to a heartbeat: %s", error)

    def close(self) -> None:
        """Send the last state and end the thread."""
        self._closed.set()
        self._thread.join(timeout=5)
        self._send()
