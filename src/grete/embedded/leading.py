"""The coordinator of a job in one of its processors: it stands by while another processor leads."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator

from grete.assembly.run import coordinate
from grete.assembly.stop_signals import Requests
from grete.assembly.submission import RunOptions
from grete.coordinator.events import Event, StepDownRequested, StopRequested
from grete.errors import Fenced, GreteError, HeldByOther, LeadershipLost

_log = logging.getLogger("grete.processor")
_PAUSE_S = 1.0
_SUCCEEDED = (Fenced, LeadershipLost, HeldByOther)
"""Another processor leads."""


class LeaderRequests:
    """Implements `assembly.stop_signals.Requests`: what the processor asks of its coordinator. Any thread may ask."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_done = threading.Event()
        self._ends_job = False
        self.on_request: Callable[[], None] = lambda: None

    @property
    def is_leaving(self) -> bool:
        """Whether it is to coordinate no more."""
        return self._is_done.is_set()

    @property
    def ends_job(self) -> bool:
        """Whether it is to end the job."""
        return self._ends_job

    def leave(self) -> None:
        """Coordinate no more: another processor leads, or is to."""
        self._asked.put("leave")
        self._is_done.set()
        self.on_request()

    def stop_job(self) -> None:
        """End the job, since there is no other processor; lead it first where another one has just ended."""
        self._ends_job = True
        self._asked.put("stop")
        self.on_request()

    def listen(self) -> None:
        """See Requests."""

    def requests(self, deadline_s: float) -> Iterator[Event]:
        """See Requests."""
        while not self._asked.empty():
            if self._asked.get() == "leave":
                yield StepDownRequested("its processor leaves")
            else:
                yield StopRequested(deadline_s, "the last processor has left")

    def again(self) -> bool:
        """See Requests. Who leaves has others to end the job."""
        if self._ends_job and self._asked.empty():
            self._asked.put("stop")
        return self._ends_job

    def wait(self, timeout_s: float) -> bool:
        """See Requests."""
        return self._is_done.wait(timeout_s)


class Leading:
    """A thread that coordinates the job whenever no other processor does, until the job or the processor ends."""

    def __init__(
        self,
        options: RunOptions,
        on_end: Callable[[], None],
        run_job: Callable[[RunOptions, Requests], int] = coordinate,
        *,
        pause_s: float = _PAUSE_S,
    ) -> None:
        """`on_end` is called once the thread has no more to do. `run_job` coordinates until the job or this ends."""
        self._run_job = run_job
        self._pause_s = pause_s
        self._options = options
        self._on_end = on_end
        self.requests = LeaderRequests()
        self.error: Exception | None = None
        """The error that ended it: the job has failed, or cannot be coordinated."""
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it is at work or stands by."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._coordinate()
        except Exception as error:  # noqa: BLE001 - a thread begins here; its end is the processor's
            others_lead = self.requests.ends_job and isinstance(error, _SUCCEEDED)
            if self.requests.is_leaving or others_lead:
                _log.info("the coordinator of a processor that leaves has ended: %s", error)
            else:
                self.error = error
        finally:
            self._on_end()

    def _coordinate(self) -> None:
        """Again, where a store did not answer or another one leads by now: nothing starts this process again."""
        while True:
            try:
                self._run_job(self._options, self.requests)
                return
            except GreteError as error:
                if not _may_begin_again(error) or self.requests.is_leaving or self.requests.ends_job:
                    raise
                _log.warning("the coordinator of this processor has ended, and stands by again: %s", error)
            self.requests.wait(self._pause_s)


def _may_begin_again(error: GreteError) -> bool:
    return error.may_pass or isinstance(error, _SUCCEEDED)
