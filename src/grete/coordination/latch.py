"""A named latch between processes, over the cells of any service: it opens once so many parties have counted."""

from __future__ import annotations

import uuid

from grete.clock import Deadline
from grete.coordination.cells import Cells, cell_name, remove
from grete.errors import CellChanged


class Latch:
    """A latch `name` for `size` parties (Samza's Latch). An open one stays open until it is removed."""

    def __init__(self, cells: Cells, name: str, size: int) -> None:
        self._cells = cells
        self._prefix = cell_name("latches", name)
        self._size = size

    def count_down(self, party: str | None = None) -> None:
        """Count once for `party`, however often it is called, as after a restart; without one every call counts."""
        name = f"{self._prefix}/{cell_name(party or uuid.uuid4().hex)}"
        try:
            self._cells.write(name, b"", None)
        except CellChanged:
            return  # counted already

    def count(self) -> int:
        """How many are still to count before it opens."""
        return max(0, self._size - len(self._cells.read_all(self._prefix)))

    def wait(self, deadline: Deadline) -> bool:
        """Wait until it is open; False when it was not by the deadline."""
        seen = self._cells.read_all(self._prefix)
        while len(seen) < self._size:
            if deadline.is_over:
                return False
            seen = self._cells.wait(self._prefix, seen, deadline)
        return True

    def remove(self) -> None:
        """Forget who has counted."""
        for name, cell in self._cells.read_all(self._prefix).items():
            remove(self._cells, name, cell)
