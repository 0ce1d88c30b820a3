"""What a container's process keeps from one assignment to the next: its fence and commits, and its system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.checkpoint.task_commit import TaskCommit
from grete.model.fence import Fence
from grete.model.ids import TaskName
from grete.systems.kept import KeptSystem


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


class Kept:
    """Needs no lock: used by one thread.

    To raise a fence refuses every older process of the container; the right of another epoch refuses everything of
    the container's own that it has not heard to its end. On Kafka that takes the opening of all its ids, most of the
    time between two epochs, and a checkpoint log has ten minutes' worth of commits. When all shares of an epoch have
    said that they end, nothing of it is at work, all commits were reported, and the next share of a slot takes it
    over in any case.
    """

    def __init__(self) -> None:
        self.system = KeptSystem()
        """The container's, for assignments that follow each other."""
        self._ended: tuple[Fence, EndedEpoch] | None = None

    def take(self, fence: Fence) -> EndedEpoch | None:
        """The last epoch, if the fence stands and nothing is at work behind it; from now on something may be."""
        ended, self._ended = self._ended, None
        return ended[1] if ended is not None and ended[0] == fence else None

    def keep(self, fence: Fence, epoch: EndedEpoch) -> None:
        """Everything that worked under the fence has ended and said so."""
        self._ended = fence, epoch

    def close(self) -> None:
        """Release connections."""
        self.system.close()
