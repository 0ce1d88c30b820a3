"""The port of cluster managers that run each container of a job in a place of its own: a pod, an application."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from grete.launch.base import ContainerStart
from grete.model.ending import ContainerEnd
from grete.model.ids import ContainerId

INCARNATION_NAME = re.compile(r"(.+)-c(\d+)-(\d+)")
"""Job, container and epoch."""


def incarnation_name(job: str, start: ContainerStart) -> str:
    """The name of an incarnation, which no other one has; `job` is the deployed name."""
    return f"{job}-c{start.container_id}-{start.epoch}"


@dataclass(frozen=True, slots=True)
class ManagedEnd:
    """What is known of the end of an incarnation: its code, negative for a signal, and what it has reported itself.

    Without a code nobody has seen its process end, and it may live yet.
    """

    code: int | None
    report: ContainerEnd | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class ManagedContainer:
    """An incarnation of a container as its manager has it."""

    name: str
    uid: str
    """No other one of its name has it."""
    container: ContainerId
    epoch: int
    host: str = ""
    """Empty while it has none."""
    has_begun: bool = True
    """Whether its process has been started; not while it waits for room, an image or its turn in a queue."""
    end: ManagedEnd | None = None
    leaves_within_s: float | None = None
    """So much time it has from when somebody asked for its end; None while nobody did."""
    sent_away: str = ""
    """Why it is to leave its host before the manager ends it there."""
    is_unplaced: bool = False
    """Whether no host was found for it, though one was looked for."""
    waits_for: str = ""
    """What people have to see to before it can begin."""


class ManagedContainers(ABC):
    """The containers of one deployment. An incarnation is started once, and never again by the manager.

    Every call may raise a GreteError; one that `may_pass` says nothing of a container.
    """

    kind: str
    """Of such a place, and the first word of handles."""

    @abstractmethod
    def name(self, start: ContainerStart) -> str:
        """The name of an incarnation, which no other one has."""

    @abstractmethod
    def create(self, start: ContainerStart) -> str:
        """Let the manager start it, unless it is there; returns its uid, empty while that is under way. Soon returns.

        Raises:
            GreteError: it is refused.
        """

    @abstractmethod
    def withdraw(self, name: str) -> None:
        """Give up what `create` has begun and not ended. It may be there nevertheless, now or soon."""

    @abstractmethod
    def read(self, name: str) -> ManagedContainer | None:
        """The one of that name, None where the manager has none."""

    @abstractmethod
    def seen(self) -> tuple[Sequence[ManagedContainer], str]:
        """All of the deployment, and the version of that sight. Of those that have ended the last ones at least."""

    @abstractmethod
    def watch(self, version: str, watch_s: float) -> None:
        """Wait until they may be others, or stand otherwise, than in that sight; at most that long."""

    @abstractmethod
    def remove(self, name: str, uid: str, grace_s: int) -> None:
        """End one, if it runs; its process has that long."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what was opened; containers stay. Called by the thread that watches, as its last call."""
