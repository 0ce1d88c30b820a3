"""How a job stands, written to its stream for those who look at it without asking the coordinator."""

from __future__ import annotations

import logging

from grete.coordinator.attempt import AttemptWriter
from grete.coordinator.health import JobHealth
from grete.coordinator.view import View
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History

_log = logging.getLogger("grete.coordinator")


class RunReport:
    """Writes how the job stands and what is wrong with it, whenever one of both changes."""

    def __init__(self, stream: CoordinatorStream, view: View, attempt: AttemptWriter) -> None:
        self._stream = stream
        self._view = view
        self._attempt = attempt
        self._standing = JobHealth()

    def write(self) -> None:
        """Let those who look at the stream know that containers start, run, or are started again."""
        stands = self._view.standing()
        if stands != self._standing:
            self._standing = stands
            self._attempt.run(stands, self._view.problem)

    def show(self, problem: str, *, is_refused: bool = True) -> None:
        """This is wrong from now on, or nothing is; `is_refused` of what comes into the history."""
        if problem == self._view.problem:
            return
        self._view.problem = problem
        # first: a reader who sees the row in the history finds the problem in the status
        self._attempt.run(self._view.standing(), problem)
        if problem:
            _log.error("%s", problem)
            if is_refused:
                History(self._stream).append("config-refused", problem=problem[:2000])
