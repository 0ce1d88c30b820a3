"""The fence that a container has raised, while its own past is no danger."""

from __future__ import annotations

from grete.model.fence import Fence


class KeptFence:
    """The fence that needs not be raised again by this process, and the right of the epoch. Used by one thread.

    Raising it refuses every older process of the container; the right of another epoch refuses everything of the
    container's own that it has not heard to its end. On Kafka that takes the opening of all its ids, most of the time
    between two epochs. When all shares of an epoch have said that they end, there is nothing of that kind, and the
    next share of a slot takes it over in any case.
    """

    def __init__(self) -> None:
        self._kept: tuple[Fence, Fence] | None = None

    def take(self, fence: Fence) -> Fence | None:
        """The right of the last epoch, if the fence stands and nothing is at work behind it; now something may be."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and kept[0] == fence else None

    def keep(self, fence: Fence, epoch: Fence) -> None:
        """Everything that worked under the right of this epoch has ended and said so."""
        self._kept = fence, epoch
