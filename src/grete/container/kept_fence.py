"""The fence that a container has raised, while its own past is no danger."""

from __future__ import annotations

from grete.model.fence import Fence


class KeptFence:
    """Which fence needs not be raised again by this process. Used by one thread.

    Raising it refuses every older process of the container, and everything of the container's own that it has not
    heard to its end. On Kafka that takes the opening of all its ids, most of the time between two epochs. When all
    shares of an epoch have said that they end, there is nothing of that kind, and the next share of a slot takes it
    over in any case.
    """

    def __init__(self) -> None:
        self._fence: Fence | None = None

    def take(self, fence: Fence) -> bool:
        """Whether the fence stands and nothing is at work behind it; from now on something may be."""
        is_kept, self._fence = self._fence == fence, None
        return is_kept

    def keep(self, fence: Fence) -> None:
        """Everything that worked under the fence has ended and said so."""
        self._fence = fence
