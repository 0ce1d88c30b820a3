"""The state that a container's process keeps from one assignment to the next: its fence, commits and system."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grete.checkpoint.task_commit import TaskCommit
from grete.errors import GreteError
from grete.model.fence import Fence
from grete.model.ids import TaskName
from grete.systems.reused import ReusedSystem

_log = logging.getLogger("grete.container")


@dataclass(frozen=True, slots=True)
class KnownCommits:
    """What is committed of `tasks`, up to the offset `log_end` of the checkpoint log; later ones are to be read."""

    tasks: frozenset[TaskName]
    commits: Mapping[TaskName, TaskCommit]
    log_end: int


@dataclass(frozen=True, slots=True)
class EndedEpoch:
    """An epoch of which nothing is at work any more: the right that its shares had, and what they committed."""

    right: Fence
    known: KnownCommits


class ProcessState:
    """Needs no lock: used by one thread.

    To raise a fence refuses every older process of the container; the right of another epoch refuses everything of
    the container's own that it has not heard to its end. On Kafka that takes the opening of all its ids, most of the
    time between two epochs, and a checkpoint log has ten minutes' worth of commits. When all shares of an epoch have
    said that they end, nothing of it is at work, all commits were reported, and the next share of a slot takes it
    over in any case.
    """

    def __init__(self) -> None:
        self.system = ReusedSystem()
        """The container's, for assignments that follow each other."""
        self._ended: tuple[Fence, EndedEpoch] | None = None
        self._finish: Callable[[], None] = lambda: None

    def take(self, fence: Fence) -> EndedEpoch | None:
        """The last epoch, if the fence stands and nothing is at work behind it; from now on something may be."""
        ended, self._ended = self._ended, None
        return ended[1] if ended is not None and ended[0] == fence else None

    def keep(self, fence: Fence, epoch: EndedEpoch) -> None:
        """Everything that worked under the fence has ended and said so."""
        self._ended = fence, epoch

    def leave(self, finish: Callable[[], None]) -> None:
        """Something of the last epoch goes on that commits nothing: `finish` waits for it, and raises its error."""
        self._finish = finish

    def finish(self) -> None:
        """Wait for what the last epoch has left.

        Raises:
            GreteError: it failed.
        """
        finish, self._finish = self._finish, lambda: None
        finish()

    def close(self) -> None:
        """Wait for what is left, and release connections."""
        try:
            self.finish()
        except GreteError as error:
            _log.warning("tasks of the last epoch were not closed: %s", error)
        self.system.close()
