"""What is asked of a running coordinator over HTTP: written to its stream, and looked at at once."""

from __future__ import annotations

from grete.coordinator.container_service import ContainerService
from grete.coordinator.events import Tick
from grete.errors import WireError
from grete.metadata.container_requests import CONTAINER_REQUESTS, ask_container
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import (
    Request,
    RequestKind,
    StopRequest,
    write_request,
    write_stop_request,
)
from grete.model.ids import ContainerId
from grete.suggestions import or_one_of
from grete.wire.coordinator_api import Requested


class RequestWriter:
    """Implements `server.app.RequestTarget`."""

    def __init__(self, stream: CoordinatorStream, epoch: int, containers: ContainerService) -> None:
        self._stream = stream
        self._epoch = epoch
        self._containers = containers

    def write(self, what: str, container: str | None, deadline_s: float, reason: str) -> Requested:
        """See server.app.RequestTarget."""
        requested = self._write(what, container, deadline_s, reason)
        if self._containers.loop is not None:
            self._containers.loop.post(Tick())  # it looks at the stream now, not at its next turn
        return requested

    def _write(self, what: str, container: str | None, deadline_s: float, reason: str) -> Requested:
        if container is None:
            if what == "drain":
                write_request(self._stream, Request(RequestKind.DRAIN, self._epoch, reason))
            elif what == "step-down":
                write_request(self._stream, Request(RequestKind.STEP_DOWN, self._epoch, reason))
            else:
                write_stop_request(self._stream, StopRequest(self._epoch, deadline_s, reason))
            return Requested(what)
        if what not in CONTAINER_REQUESTS:
            raise WireError(f"what is one of {', '.join(CONTAINER_REQUESTS)}, got {what!r}")
        known = self._containers.serving()[1].containers
        if ContainerId(container) not in known:
            raise WireError(f"the job has no container {container!r}{or_one_of(container, known)}")
        id_ = ask_container(self._stream, ContainerId(container), what, self._epoch, deadline_s, reason)
        return Requested(what, container, id_)
