"""Taking back what a task did for a message that is set aside: in a worker or in the application's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class _Changed(Protocol):
    def begin_message(self) -> None: ...

    def undo_message(self) -> None: ...


class Undoable:
    """A task whose collector and stores can take back what was done since a message began."""

    collector: _Changed
    stores: Mapping[str, _Changed]

    def begin_message(self) -> None:
        """From here on `undo_message` can take back what the task does."""
        self.collector.begin_message()
        for store in self.stores.values():
            store.begin_message()

    def undo_message(self) -> None:
        """Take back outputs and changes of stores since `begin_message`."""
        self.collector.undo_message()
        for store in self.stores.values():
            store.undo_message()
