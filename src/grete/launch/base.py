"""Starting and stopping containers, wherever they run.

Idempotent by (container id, attempt): starting one that runs is a no-op. Stop is a request first and a kill after
the deadline. An exit is always reported, with the code the operating system or the thread gave.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grete.model.ids import ContainerId

RunContainer = Callable[[Mapping[str, str], threading.Event], int]
"""Runs a container in this process, with its environment, until it ends or is asked to stop; its exit code."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """A container to start: `epoch` fences the container's commits; `environment` holds no secrets (S2-57)."""

    container_id: ContainerId
    epoch: int
    environment: Mapping[str, str]
    host: str = ""
    """Where it shall run, for a launcher that knows several; empty for anywhere."""
    is_host_required: bool = False
    """Whether an operator has asked for that host; else the container was there last, and another one will do."""


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """A container ended. `exit_code` is 0 for drained, negative for a signal.

    `reason` is for people: the container's own error, or the signal; empty when it ended in order. `place` names the
    message that could not be processed, if that is what it ended with.
    """

    container_id: ContainerId
    epoch: int
    exit_code: int
    reason: str
    place: str = ""
    left: bool = False
    """Its processor has left the job, and the container with it."""
    may_live: bool = False
    """Nothing is heard of it any more, or it does not end: it has to be fenced off before others get its tasks."""


class Launcher(ABC):
    """Starts containers and reports their exits."""

    outlives_coordinator = True
    """Whether containers go on when this process ends, and the next coordinator's launcher can `adopt` them."""

    @abstractmethod
    def start(self, container: ContainerStart) -> None:
        """Start it; returns when the process or thread exists. Starting the same or a lower epoch again does nothing.

        A higher epoch takes the place of one that still runs: that one is killed, and its exit is reported too.
        """

    @abstractmethod
    def request_stop(self, container_id: ContainerId) -> None:
        """Ask for a graceful stop at the next batch boundary. Unknown ids are ignored."""

    @abstractmethod
    def kill(self, container_id: ContainerId) -> None:
        """End it now. The exit is reported like any other."""

    @abstractmethod
    def exits(self) -> list[ContainerExit]:
        """The exits since the last call, each reported exactly once. Does not block."""

    def descriptors(self) -> Sequence[int]:
        """Descriptors that are readable once a container has ended, until `exits` reports it; valid until then.

        Exits of which there is none are noticed when `exits` is called next.
        """
        return ()

    @abstractmethod
    def handle(self, container_id: ContainerId) -> str:
        """Text by which another coordinator's launcher finds the running container; empty when it can not."""

    @abstractmethod
    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """Take over a container that another launcher started; False when it does not run any more, or not here.

        From then on it is stopped, killed and reported like one of our own.
        """

    def room(self) -> Sequence[ContainerId]:
        """The containers that there is a process for, where those come and go; empty where any number can be started.

        Does not block.
        """
        return ()

    def awaited(self) -> Mapping[ContainerId, str]:
        """The containers that a cluster manager has not begun yet, each with why it waits, as far as that is said.

        Does not block. Nothing of them can be heard, so they are not silent, however long that takes.
        """
        return {}

    @abstractmethod
    def abandon(self) -> None:
        """Forget every container and leave those running that another launcher can adopt."""

    @abstractmethod
    def close(self) -> None:
        """Kill what still runs and wait for it."""
