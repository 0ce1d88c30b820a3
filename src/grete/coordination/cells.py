"""Small named values with compare-and-set: what latch, membership and barrier are built on, on every service.

A service that elects leaders (`grete.coordination.base`) needs to offer just this besides. The recipes over it are
written once (`grete.coordination.membership`, `latch`, `barrier`). Cells are for coordination: some thousand values
of some kilobytes. Records, offsets and job models live in keyed logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from grete.clock import Deadline
from grete.errors import CellChanged, CellTooLarge


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as read. `version` belongs to this write alone: no other, of whatever cell or process, has had it."""

    value: bytes
    version: str


def cell_name(*parts: str) -> str:
    """The name made of parts of any text: ASCII letters, digits and `._~-%`, with a `/` between the parts."""
    return "/".join(quote(part, safe="") for part in parts)


def last_part(name: str) -> str:
    """The last part of a name, as it was given to `cell_name`."""
    return unquote(name.rpartition("/")[2])


def below(prefix: str) -> str:
    """How the names begin that `read_all(prefix)` finds; the empty prefix finds all."""
    return f"{prefix}/" if prefix else ""


class Cells(ABC):
    """The values of one scope. Safe to use from several threads; many processes use it at once.

    Reads are linearizable: a process that was told of a write, by whatever way, reads it or a later one. A call that
    gets no answer in time raises `CoordinationUnreachable`; a change may then have happened or not, so its caller
    reads, and recognises its own value by what it has put into it.
    """

    @abstractmethod
    def read(self, name: str) -> Cell | None:
        """The cell as it is now; None when there is none."""

    @abstractmethod
    def read_all(self, prefix: str) -> Mapping[str, Cell]:
        """The cells whose names begin with the parts of `prefix`, by whole name; not the one called `prefix`.

        The empty prefix finds all.
        """

    @abstractmethod
    def write(self, name: str, value: bytes, expected: str | None) -> Cell:
        """Set the value, provided that the cell still has the version `expected`; None: that there is no cell.

        Durable on return.

        Raises:
            CellChanged: it has another version, or none; nothing was written.
            CellTooLarge: the service holds no value of that size; nothing was written.
        """

    @abstractmethod
    def delete(self, name: str, expected: str) -> None:
        """Remove the cell, provided that it still has the version `expected`.

        Raises:
            CellChanged: it has another version, or is gone.
        """

    def clear(self) -> None:
        """Remove all cells, and whatever else the service keeps of the scope's."""
        while found := self.read_all(""):
            for name, cell in found.items():
                remove(self, name, cell)

    @abstractmethod
    def close(self) -> None:
        """Release every resource; the values stay."""

    def wait(self, prefix: str, seen: Mapping[str, Cell], deadline: Deadline) -> Mapping[str, Cell]:
        """The cells below `prefix` as soon as they are not those in `seen`, at the deadline at the latest.

        So a change between reading and waiting is not missed. Here it polls, with the deadline's pauses; services
        with watches wait for those.
        """
        while (found := self.read_all(prefix)) == seen and deadline.pause():
            pass
        return found


def check_size(name: str, value: bytes, largest: int, service: str) -> None:
    """Refuse what the service would cut off, or would refuse in words of its own.

    Raises:
        CellTooLarge: the value has more than `largest` bytes.
    """
    if len(value) > largest:
        raise CellTooLarge(name, len(value), largest, service)


def change(cells: Cells, name: str, decide: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Set what `decide` makes of the value, again as often as another process was faster; None leaves it as it is.

    Returns the value as it is in the end. `decide` recognises what an own attempt without an answer has written.
    """
    while True:
        cell = cells.read(name)
        value = decide(None if cell is None else cell.value)
        if value is None:
            return None if cell is None else cell.value
        try:
            return cells.write(name, value, None if cell is None else cell.version).value
        except CellChanged:
            continue


def remove(cells: Cells, name: str, cell: Cell) -> bool:
    """Remove the cell as it was read; False when another process has changed or removed it since."""
    try:
        cells.delete(name, cell.version)
    except CellChanged:
        return False
    return True
