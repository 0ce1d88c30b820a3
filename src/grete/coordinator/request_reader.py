"""What was asked of a job through its coordinator stream, each request obeyed once."""

from __future__ import annotations

from collections.abc import Iterator

from grete.coordinator.events import (
    ContainerRequested,
    Event,
    StepDownRequested,
    StopRequested,
)
from grete.metadata.container_requests import read_container_requests
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.metadata.job_state import (
    RequestKind,
    read_request,
    read_stop_request,
)


class RequestReader:
    """Reads the requests that are meant for one coordinator.

    A request to stop or to drain names the epoch that led when it was made: `first_epoch` or a later one, of
    incarnations that this one goes on for. An earlier one was another run, which has ended. He may have asked since
    the election, long before this began.
    """

    def __init__(self, stream: CoordinatorStream, epoch: int, first_epoch: int) -> None:
        self._stream = stream
        self._epoch = epoch
        self._first_epoch = first_epoch
        self._obeyed: set[str] = set()

    def is_drain_new(self, *, is_draining: bool) -> bool:
        """Whether a drain was asked for that has not begun; it is written into the history."""
        drain = read_request(self._stream, RequestKind.DRAIN)
        if drain is None or drain.epoch < self._first_epoch or is_draining:
            return False
        History(self._stream).append("drain-requested", reason=drain.reason)
        return True

    def of_the_job(self) -> Iterator[Event]:
        """A stop or a step-down that was asked for."""
        stop = read_stop_request(self._stream)
        if stop is not None and stop.epoch >= self._first_epoch:
            yield StopRequested(stop.deadline_s, stop.reason)
        step_down = read_request(self._stream, RequestKind.STEP_DOWN)
        if step_down is not None and step_down.epoch == self._epoch:
            yield StepDownRequested(step_down.reason)

    def of_containers(self) -> Iterator[Event]:
        """Requests to stop, start or restart a container, each once."""
        for request in read_container_requests(self._stream):
            if request.epoch == self._epoch and request.id not in self._obeyed:
                self._obeyed.add(request.id)
                yield ContainerRequested(
                    request.container, request.what, request.deadline_s, request.reason, request.host
                )
