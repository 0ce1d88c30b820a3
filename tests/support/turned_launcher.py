"""The launcher of containers that a manager runs, turned by a test."""

from __future__ import annotations

from grete.deploy.managed_launcher import ManagedLauncher
from grete.launch.base import ContainerExit


class TurnedLauncher(ManagedLauncher):
    """Looks when it is told to, without a thread."""

    def _begin(self) -> None:
        pass

    def look(self) -> list[ContainerExit]:
        """Look once; returns what has ended."""
        self.turn()
        return self.exits()
