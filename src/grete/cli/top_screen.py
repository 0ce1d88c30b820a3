"""What `grete top` shows and what its keys do: lines of a width, of what was seen of jobs. No terminal in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from grete.cli.output import cell

Rows = Sequence[Mapping[str, Any]]
HELP = "arrows: choose   Enter: open   Esc: back   s: sort   r: the other way   /: filter   l: log   q: quit"
_HEAD = 3
"""Lines above the rows: title, help, headings."""


class Room(StrEnum):
    """What the screen is about."""

    JOBS = "jobs"
    TASKS = "tasks"
    LOG = "log"


class Column(NamedTuple):
    """A column of a table: the name of its value, its heading, and how wide it is at least; 0 takes what is left."""

    name: str
    heading: str
    width: int
    is_number: bool = False


_COLUMNS: Mapping[Room, tuple[Column, ...]] = {
    Room.JOBS: (
        Column("job", "JOB", 20),
        Column("state", "STATE", 14),
        Column("behind", "BEHIND", 12, True),
        Column("rate", "RECORDS/S", 10, True),
        Column("tasks", "TASKS", 6, True),
        Column("run_by", "RUN BY", 22),
        Column("message", "MESSAGE", 0),
    ),
    Room.TASKS: (
        Column("task", "TASK", 24),
        Column("container", "CONTAINER", 9),
        Column("partition", "PARTITION", 24),
        Column("checkpointed", "PROCESSED", 12, True),
        Column("upcoming", "NEXT", 12, True),
        Column("behind", "BEHIND", 0, True),
    ),
    Room.LOG: (Column("line", "LOG", 0),),
}


@dataclass(slots=True)
class Screen:
    """One screen: which room, what is chosen, how it is sorted and filtered."""

    rows_of: Callable[[Room, str], Rows]
    """The rows of a room; of tasks and log with the job's name."""
    room: Room = Room.JOBS
    job: str = ""
    chosen: int = 0
    first: int = 0
    sort: int = 0
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    is_over: bool = False
    _shown: list[Mapping[str, Any]] = field(default_factory=list)

    def press(self, key: str) -> None:
        """A key: a character, or `up`, `down`, `page-up`, `page-down`, `enter`, `escape`, `backspace`."""
        if self.is_typing:
            self._type(key)
            return
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -20, "page-down": 20}
        if key in steps:
            self.chosen = max(0, min(self.chosen + steps[key], len(self._shown) - 1))
        elif key == "enter" and self.room is Room.JOBS and self._shown:
            self._open(Room.TASKS, str(self._shown[self.chosen]["job"]))
        elif key == "l" and (self.room is Room.TASKS or (self.room is Room.JOBS and self._shown)):
            self._open(Room.LOG, self.job or str(self._shown[self.chosen]["job"]))
        elif key in ("escape", "backspace", "left"):
            self._back()
        elif key == "s":
            self.sort = (self.sort + 1) % len(_COLUMNS[self.room])
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.is_typing, self.filter = True, ""
        elif key == "q":
            self.is_over = True

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key
        self.chosen = 0

    def _open(self, room: Room, job: str) -> None:
        self.room, self.job = room, job
        self.chosen = self.first = self.sort = 0
        self.filter, self.is_reversed = "", False

    def _back(self) -> None:
        before = {Room.LOG: Room.TASKS, Room.TASKS: Room.JOBS}.get(self.room)
        if before is not None:
            self._open(before, "" if before is Room.JOBS else self.job)

    def lines(self, width: int, height: int, title: str) -> list[str]:
        """The screen, `height` lines of at most `width` characters."""
        columns = _COLUMNS[self.room]
        found = [row for row in self.rows_of(self.room, self.job) if self._is_wanted(row)]
        if self.room is not Room.LOG:
            found.sort(key=lambda row: _order(row.get(columns[self.sort].name)), reverse=self.is_reversed)
        self._shown = found
        space = max(1, height - _HEAD)
        self.chosen = max(0, min(self.chosen, len(found) - 1))
        self.first = max(0, min(self.first, self.chosen))
        self.first = max(self.first, self.chosen - space + 1)
        if self.room is Room.LOG and self.chosen == 0:
            self.first = max(0, len(found) - space)
        where = f"{title}  {self.job}  " if self.job else f"{title}  "
        filtered = (
            f"filter: {self.filter}{'_' if self.is_typing else ''}" if self.filter or self.is_typing else ""
        )
        headings = [one.heading + self._mark(number) for number, one in enumerate(columns)]
        shown = [
            _line([row.get(one.name) for one in columns], columns)
            for row in found[self.first : self.first + space]
        ]
        lines = [f"{where}{len(found)} {self.room}  {filtered}", HELP, _line(headings, columns), *shown]
        return [line[:width] for line in lines[:height]]

    def chosen_line(self) -> int | None:
        """Which line is to be marked; None where nothing can be chosen."""
        return None if self.room is Room.LOG or not self._shown else _HEAD + self.chosen - self.first

    def _mark(self, number: int) -> str:
        if self.room is Room.LOG or number != self.sort:
            return ""
        return "^" if self.is_reversed else "v"

    def _is_wanted(self, row: Mapping[str, Any]) -> bool:
        return not self.filter or any(self.filter.lower() in str(value).lower() for value in row.values())


def _line(values: Sequence[Any], columns: Sequence[Column]) -> str:
    parts = []
    for value, column in zip(values, columns, strict=True):
        text = value if isinstance(value, str) and column.width == 0 else cell(value)
        shown = cell(text) if isinstance(text, str) else str(text)
        width = column.width
        cut = shown if width == 0 or len(shown) <= width else f"{shown[: width - 1]}…"
        parts.append(cut.rjust(width) if column.is_number else cut.ljust(width))
    return "  ".join(parts).rstrip()


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers from the most to the least, then texts, then nothing."""
    if value is None or value == "":
        return 2, 0.0, ""
    if isinstance(value, int | float) or str(value).isdecimal():
        return 0, -float(value), ""
    return 1, 0.0, str(value)
