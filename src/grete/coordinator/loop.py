"""The one loop that acts: takes events, asks `decide`, executes what it says while the leadership holds."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from grete.clock import Clock
from grete.coordination.base import Coordination, Leadership
from grete.coordinator.decide import (
    FINAL,
    Action,
    ContainerExited,
    Event,
    Kill,
    Launch,
    Phase,
    Record,
    RequestStop,
    Started,
    State,
    StopRequested,
    Tick,
    decide,
)
from grete.errors import Fenced, GreteError, LeadershipLost
from grete.failpoints import failpoint
from grete.launch.base import ContainerStart, Launcher
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.metadata.job_state import read_stop_request
from grete.model.ids import ContainerId

_log = logging.getLogger("grete.coordinator")
_POLL_S = 0.1
_INBOX = 10_000
_LAUNCHES_PER_EPOCH_BITS = 20


def container_epoch(leadership_epoch: int, launch: int) -> int:
    """The fence epoch of a launch: grows with every launch of every leader, so it never repeats."""
    return (leadership_epoch << _LAUNCHES_PER_EPOCH_BITS) | launch


@dataclass(slots=True)
class Board:
    """What the HTTP server shows of the loop: the current epoch of each container, and who was asked to stop."""

    epochs: dict[ContainerId, int]
    stopping: set[ContainerId]


class CoordinatorLoop:
    """Runs until the job is in a final phase or the leadership is lost."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        leadership: Leadership,
        launcher: Launcher,
        stream: CoordinatorStream,
        clock: Clock,
        state: State,
        environment: Callable[[ContainerId, int], dict[str, str]],
        renew_every_s: float,
    ) -> None:
        self._coordination = coordination
        self._leadership: Leadership = leadership
        self._launcher = launcher
        self._stream = stream
        self._history = History(stream)
        self._clock = clock
        self.state = state
        self._environment = environment
        self._renew_every_s = renew_every_s
        self._renewed_s = clock.monotonic_s()
        self._inbox: queue.Queue[Event] = queue.Queue(_INBOX)
        self._launches: dict[int, tuple[ContainerId, int]] = {}
        self.board = Board({}, set())
        self.kill_now = threading.Event()

    def post(self, event: Event) -> None:
        """Put an event into the inbox; called from any thread."""
        self._inbox.put(event)

    def run(self, containers: tuple[ContainerId, ...]) -> State:
        """Launch the containers and react until the end.

        Raises:
            LeadershipLost, Fenced: another coordinator has taken over; all containers of ours were killed.
        """
        self._handle(Started(containers))
        while self.state.phase not in FINAL:
            self._renew()
            for exit_ in self._launcher.exits():
                launch = self._launches.get(exit_.epoch)
                if launch is not None:
                    self._handle(ContainerExited(launch[0], launch[1], exit_.exit_code, exit_.reason))
            self._tail()
            self._handle(self._next_event())
        return self.state

    def _next_event(self) -> Event:
        try:
            return self._inbox.get(timeout=_POLL_S)
        except queue.Empty:
            return Tick()

    def _tail(self) -> None:
        """Requests that arrived in the stream."""
        if self.state.phase is not Phase.RUNNING:
            return
        request = read_stop_request(self._stream)
        if request is not None and request.epoch == self._leadership.epoch:
            self._handle(StopRequested(request.deadline_s, request.reason))

    def _renew(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._renewed_s < self._renew_every_s:
            return
        renewed = self._coordination.renew(self._leadership)
        if renewed is None:
            raise LeadershipLost(f"epoch {self._leadership.epoch} of {self._leadership.scope} was taken over")
        self._leadership = renewed
        self._renewed_s = now_s

    def _handle(self, event: Event) -> None:
        self.state, actions = decide(self.state, event, self._clock.monotonic_s())
        for action in actions:
            self._execute(action)

    def _execute(self, action: Action) -> None:
        """Do it, unless the leadership it was decided under may be over: then renew first or end."""
        if self._clock.monotonic_s() >= self._leadership.valid_until_s:
            self._renewed_s = float("-inf")
            self._renew()
        match action:
            case Launch(container, launch):
                self._launch(container, launch)
            case RequestStop(container):
                self.board.stopping.add(container)
                self._launcher.request_stop(container)
            case Kill(container):
                self._launcher.kill(container)
            case Record(event, details):
                self._record(event, details)

    def _launch(self, container: ContainerId, launch: int) -> None:
        epoch = container_epoch(self._leadership.epoch, launch)
        self._launches[epoch] = (container, launch)
        self.board.epochs[container] = epoch
        _log.info("launching container %s, epoch %s", container, epoch)
        self._launcher.start(ContainerStart(container, epoch, self._environment(container, epoch)))
        failpoint("coordinator.launched")

    def _record(self, event: str, details: object) -> None:
        assert isinstance(details, dict)
        _log.info("%s %s", event, details)
        try:
            self._history.append(event, **{name.replace("-", "_"): text for name, text in details.items()})
        except Fenced:
            raise
        except GreteError as error:
            # history is for people: losing a row must not end a job that works
            _log.warning("history row %s was not written: %s", event, error)
