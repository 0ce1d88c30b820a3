"""How a container ends: its exit code, and what it says of the error that ended it.

A `Failure` is made where the error is, and travels as a value: in the exit report of the container, and, from a
Python worker through Spark's JVM, as a note of the exception, since all that arrives there is its text.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

from grete.errors import (
    ApplicationError,
    GreteError,
    LoginRefused,
    MissingExtra,
    OffsetOutOfRange,
    ProcessingError,
    StreamRecreated,
)
from grete.text_logs import shortened

_MARK = "grete-failure: "
_LONGEST = 2_000
_INSTALLED = "-packages/"
_NOT_THE_APPLICATIONS = (str(Path(__file__).parents[1]), str(Path(os.__file__).parent), "<")
"""Where files are in which nobody looks for his own mistake: grete, libraries, what has no file."""
_OF_JAVA = re.compile(
    r"An error occurred while calling [^\n]*\n: (?:[\w$]+\.)*(?P<type>[\w$]+)(?:: (?P<message>[^\n]*))?"
)
"""The text of a Py4JJavaError, whose first line names only the Java object that was called."""


class ExitCode(IntEnum):
    """Exit codes of containers, as the coordinator reads them. Negative ones are signals."""

    OK = 0
    FAILED = 1
    CONFIG = 2
    POISON = 3
    FENCED = 5
    STOPPED = 6
    """Asked to stop before everything was read, by a coordinator, a signal, or because there was no coordinator.

    Not 0: another coordinator than the one that asked may get to see it, and has to start the container again.
    """
    OFFSETS_GONE = 7
    UNUSABLE = 8
    """The application, its plan, its state, a login or this installation cannot work, however often it is tried."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as its container reports it: exception type, first line of its message, and where it was met.

    `line` is the application's own line, as `views.py:12`.
    """

    type: str
    message: str = ""
    task: str = ""
    ssp: str = ""
    offset: str = ""
    line: str = ""

    @property
    def place(self) -> str:
        """The message that could not be processed, empty when it was not a message."""
        return f"{self.ssp} offset {self.offset}" if self.ssp else ""

    def __str__(self) -> str:
        text = f"{self.type} {self.message}".strip()
        if self.line:
            text += f" ({self.line})"
        if self.place:
            text += f" at {self.place}"
        return f"{text}, task {self.task!r}" if self.task else text


class ContainerEnd(int):
    """A container's exit code, with the failure that it stands for, if it does."""

    failure: Failure | None

    def __new__(cls, code: int, failure: Failure | None = None) -> ContainerEnd:
        """The code, as any whole number; a code without a failure ended in order, or could not say why."""
        made = super().__new__(cls, code)
        made.failure = failure
        return made


def failure_of(error: BaseException, *, task: str = "", ssp: str = "", offset: str = "") -> Failure:
    """The error's own message, or the one that was noted nearer to it; of one that Py4J brings, Java's own."""
    noted = _noted(error)
    if noted is not None:
        return noted
    text = str(error)
    if java := _OF_JAVA.match(text):
        return Failure(java["type"], _first_line(java["message"] or ""), task, ssp, offset)
    return Failure(type(error).__name__, _first_line(text), task, ssp, offset, _line(error))


def _line(error: BaseException) -> str:
    """The application's line that was last on the way to the error; empty where it has no part in it."""
    lines = [
        f"{Path(frame.f_code.co_filename).name}:{number}"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_NOT_THE_APPLICATIONS)
        and _INSTALLED not in frame.f_code.co_filename
    ]
    return lines[-1] if lines else ""


def note(error: BaseException, failure: Failure) -> None:
    """Let the error carry the failure wherever it goes; the first one noted stays."""
    if _noted(error) is None:
        error.add_note(_MARK + json.dumps(asdict(failure)))


def noted_in(text: str) -> Failure | None:
    """The failure that was noted on the exception whose trace this is."""
    for line in text.splitlines():
        _, mark, rest = line.partition(_MARK)
        if mark:
            return _parse(rest)
    return None


def as_document(failure: Failure | None) -> dict[str, str] | None:
    """As JSON says it."""
    return None if failure is None else asdict(failure)


def from_document(document: Any) -> Failure | None:
    """The inverse of `as_document`; None when it is something else. Nothing of it is longer than a line."""
    if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
        return None
    named = (field.name for field in fields(Failure))
    return Failure(**{name: _first_line(str(document.get(name, ""))) for name in named})


def _parse(text: str) -> Failure | None:
    try:
        return from_document(json.JSONDecoder().raw_decode(text)[0])
    except ValueError:
        return None


def _noted(error: BaseException) -> Failure | None:
    for one in causes(error):
        for text in getattr(one, "__notes__", ()):
            if text.startswith(_MARK):
                return _parse(text.removeprefix(_MARK))
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from or amid."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    line = shortened(line, _LONGEST)
    return line if line.isprintable() else line.encode("unicode_escape").decode("ascii")


def exit_code(error: GreteError, *, has_worked: bool = False) -> int:
    """The code with which a container ends that this error ended.

    `has_worked`: it had committed something. Then a login that is refused was changed meanwhile, and the next start
    reads its secrets again; else it is wrong.
    """
    if isinstance(error, ProcessingError):
        return ExitCode.POISON
    if isinstance(error, LoginRefused):
        return ExitCode.FAILED if has_worked else ExitCode.UNUSABLE
    if isinstance(error, ApplicationError | MissingExtra):
        return ExitCode.UNUSABLE
    is_gone = isinstance(error, OffsetOutOfRange | StreamRecreated)
    return ExitCode.OFFSETS_GONE if is_gone else error.exit_code
