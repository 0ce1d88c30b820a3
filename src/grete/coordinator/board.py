"""What containers are told when they send a heartbeat, shared between the loop and the HTTP server's threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from enum import StrEnum

from grete.errors import CoordinatorUnavailable, Fenced
from grete.model.ids import ContainerId


class Told(StrEnum):
    """What a container is told to do."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Directive:
    """The answer to a heartbeat.

    `number` of RUN grows whenever the container shall build its query anew; that of PAUSE names the barrier.
    """

    told: Told
    number: int


@dataclass(frozen=True, slots=True)
class Seat:
    """One incarnation's place: its epoch, what it is told, and when it was last heard of (monotonic).

    `fence` is the epoch of its commits: its own, or a higher one since it has given tasks away.
    """

    epoch: int
    launch: int
    directive: Directive
    serial: int
    heard_s: float
    fence: int


class Board:
    """A seat per running container. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seats: dict[ContainerId, Seat] = {}
        self._is_open = False

    def open(self) -> None:
        """From now on, who has no seat is fenced; before, it is asked to come again."""
        self._is_open = True

    def seat(self, container: ContainerId) -> Seat | None:
        """The container's seat."""
        with self._lock:
            return self._seats.get(container)

    def seats(self) -> dict[ContainerId, Seat]:
        """All of them."""
        with self._lock:
            return dict(self._seats)

    def place(self, container: ContainerId, seat: Seat) -> None:
        """Give an incarnation its seat."""
        with self._lock:
            self._seats[container] = seat

    def tell(self, container: ContainerId, directive: Directive, fence: int | None = None) -> None:
        """Change what it is told, and the epoch of its commits. Being told to stop is final for an incarnation."""
        with self._lock:
            seat = self._seats.get(container)
            if seat is None or seat.directive.told is Told.STOP:
                return
            serial = directive.number if directive.told is Told.RUN else seat.serial
            fence = seat.fence if fence is None else fence
            self._seats[container] = replace(seat, directive=directive, serial=serial, fence=fence)

    def clear(self, container: ContainerId, launch: int) -> None:
        """No incarnation up to this launch runs any more."""
        with self._lock:
            seat = self._seats.get(container)
            if seat is not None and seat.launch <= launch:
                del self._seats[container]

    def heard(self, container: ContainerId, epoch: int, now_s: float) -> Seat:
        """Take a heartbeat.

        Raises:
            Fenced: this is not the incarnation that has the seat.
            CoordinatorUnavailable: this coordinator does not know yet who runs.
        """
        with self._lock:
            seat = self._seats.get(container)
            if seat is not None and seat.epoch == epoch:
                seat = self._seats[container] = replace(seat, heard_s=now_s)
                return seat
        if not self._is_open:
            raise CoordinatorUnavailable("the coordinator has only just started")
        raise Fenced(f"container {container}", epoch=epoch, seen=0 if seat is None else seat.epoch)
