"""What an operator asks of a running job: written for the coordinator that leads now, and for no other."""

from __future__ import annotations

from grete.config.choices import LauncherChoice
from grete.errors import JobError
from grete.metadata.assignments import TaskAssignments
from grete.metadata.container_requests import ask_container
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import Request, RequestKind, StopRequest, write_request, write_stop_request
from grete.model.ids import ContainerId, JobId
from grete.operations.job_election import JobElection
from grete.suggestions import or_one_of


class JobRequests:
    """Requests to the coordinator of one job; each raises `JobError` where the job is not running."""

    def __init__(self, job: JobId, stream: CoordinatorStream, election: JobElection) -> None:
        self._job = job
        self._stream = stream
        self._election = election

    def stop(self, deadline_s: float, reason: str) -> None:
        """Ask that the job stops, within `deadline_s` seconds."""
        write_stop_request(self._stream, StopRequest(self._election.epoch_to_ask(), deadline_s, reason))

    def drain(self, reason: str) -> None:
        """Ask that the job ends when what is there is consumed."""
        write_request(self._stream, Request(RequestKind.DRAIN, self._election.epoch_to_ask(), reason))

    def step_down(self, reason: str) -> int:
        """Ask that another coordinator leads; returns the epoch of the one that was asked.

        Raises:
            JobError: the job is not running, or its containers would end with its coordinator.
        """
        if self._stream.settings().job.launcher == LauncherChoice.THREAD:
            raise JobError(
                f"job {self._job.shown} has its containers in its coordinator, and they would end with it"
            )
        epoch = self._election.epoch_to_ask()
        write_request(self._stream, Request(RequestKind.STEP_DOWN, epoch, reason))
        return epoch

    def container(
        self, container: ContainerId, what: str, deadline_s: float, reason: str, host: str = ""
    ) -> str:
        """Ask to `stop`, `start` or `restart` one container, on a host if one is named; returns the request's id.

        Raises:
            JobError: the job is not running, or has no such container.
        """
        epoch = self._election.epoch_to_ask()
        known = sorted(set(TaskAssignments(self._stream).read().values()))
        if container not in known:
            raise JobError(
                f"job {self._job.shown} has no container {container!r}{or_one_of(container, known)}"
            )
        return ask_container(self._stream, container, what, epoch, deadline_s, reason, host)
