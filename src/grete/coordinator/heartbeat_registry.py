"""The current incarnation of each container and its directive, shared by the loop and the HTTP threads."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace

from grete.errors import CoordinatorUnavailable, Fenced
from grete.model.ids import ContainerId
from grete.wire.container_protocol import Command, Directive


@dataclass(frozen=True, slots=True)
class ContainerSlot:
    """The current incarnation of a container: its epoch, its directive, and its last heartbeat (monotonic).

    `serial` numbers what it is to run. `fence` is the epoch of its commits: its own, or a higher one since it has
    given tasks away. One that only gets ready so far `has_tasks` from when it is commanded to run, and not before.
    """

    epoch: int
    launch: int
    directive: Directive
    serial: int
    heartbeat_s: float
    fence: int
    has_tasks: bool = True


class HeartbeatRegistry:
    """A slot per running container, and at most one answer to its heartbeats that is held. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[ContainerId, ContainerSlot] = {}
        self._held: dict[ContainerId, tuple[ContainerSlot, Future[Directive]]] = {}
        self._is_closed = False
        self._is_open = False

    def open(self) -> None:
        """All running containers have their slots: from now on any other is fenced; before, it has to ask again."""
        self._is_open = True

    def slot(self, container: ContainerId) -> ContainerSlot | None:
        """The container's slot."""
        with self._lock:
            return self._slots.get(container)

    def slots(self) -> dict[ContainerId, ContainerSlot]:
        """All of them."""
        with self._lock:
            return dict(self._slots)

    def assign(self, container: ContainerId, slot: ContainerSlot) -> None:
        """Give an incarnation the container's slot."""
        with self._lock:
            self._slots[container] = slot
            self._answer(container)

    def direct(self, container: ContainerId, directive: Directive, fence: int | None = None) -> None:
        """Change the directive, and the epoch of the commits. STOP is final for an incarnation."""
        with self._lock:
            slot = self._slots.get(container)
            if slot is None or slot.directive.action is Command.STOP:
                return
            runs = directive.action is Command.RUN
            serial = directive.number if runs else slot.serial
            fence = slot.fence if fence is None else fence
            has_tasks = runs or slot.has_tasks
            self._slots[container] = replace(
                slot, directive=directive, serial=serial, fence=fence, has_tasks=has_tasks
            )
            self._answer(container)

    def clear(self, container: ContainerId, launch: int) -> None:
        """No incarnation up to this launch runs any more."""
        with self._lock:
            slot = self._slots.get(container)
            if slot is not None and slot.launch <= launch:
                del self._slots[container]
                self._answer(container)

    def record_heartbeat(self, container: ContainerId, epoch: int, now_s: float) -> ContainerSlot:
        """Note that the incarnation with this epoch is alive; returns its slot. A held answer is given.

        Raises:
            Fenced: another incarnation has the slot.
            CoordinatorUnavailable: this coordinator does not know yet which containers run.
        """
        with self._lock:
            slot = self._slots.get(container)
            if slot is not None and slot.epoch == epoch:
                slot = self._slots[container] = replace(slot, heartbeat_s=now_s)
                self._answer(container)
                return slot
        if not self._is_open:
            raise CoordinatorUnavailable("the coordinator has only just started")
        raise _fenced(container, epoch, slot)

    def next_directive(self, container: ContainerId, slot: ContainerSlot) -> Future[Directive]:
        """The directive, or Fenced, as soon as anything has changed since a heartbeat was answered with this slot.

        Its callbacks run in the thread that changes something, under a lock. Cancelling it gives it up.
        """
        held: Future[Directive] = Future()
        with self._lock:
            self._answer(container)
            self._held[container] = (slot, held)
            if self._is_closed or self._slots.get(container) is not slot:
                self._answer(container)
        return held

    def close(self) -> None:
        """Give every answer that is held, and hold none from now on: what serves them is to end soon."""
        with self._lock:
            self._is_closed = True
            for container in list(self._held):
                self._answer(container)

    def _answer(self, container: ContainerId) -> None:
        """Give the answer that is held, if one is."""
        seen, held = self._held.pop(container, (None, None))
        if seen is None or held is None or not held.set_running_or_notify_cancel():
            return
        slot = self._slots.get(container)
        if slot is not None and slot.epoch == seen.epoch:
            held.set_result(slot.directive)
        else:
            held.set_exception(_fenced(container, seen.epoch, slot))


def _fenced(container: ContainerId, epoch: int, slot: ContainerSlot | None) -> Fenced:
    return Fenced(f"container {container}", epoch=epoch, seen=0 if slot is None else slot.epoch)
