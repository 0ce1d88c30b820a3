"""One line that says how far something is: rewritten in place on a terminal, now and then a new line elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

_PLAIN_EVERY_S = 5.0
_CLEAR_LINE = "\r\x1b[K"


class ProgressLine:
    """Writes to one stream. Nothing else should write a line there between the first `show` and `end`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty()
        self._shown = ""
        self._shown_at_s = float("-inf")

    def show(self, line: str) -> None:
        """Show the line now, or, where lines stay, when the last one is five seconds old."""
        if line == self._shown:
            return
        if self._in_place:
            self._write(_CLEAR_LINE + line[: shutil.get_terminal_size().columns - 1], line)
        elif time.monotonic() - self._shown_at_s >= _PLAIN_EVERY_S:
            self._write(line + "\n", line)

    def stay(self, line: str) -> None:
        """Show a line now that stays, above those that follow."""
        self._stream.write((_CLEAR_LINE if self._in_place else "") + line + "\n")
        self._stream.flush()
        self._shown = ""

    def end(self, line: str) -> None:
        """Show the last line; it stays."""
        if self._in_place:
            self._write(_CLEAR_LINE + line + "\n", "")
        elif line != self._shown:
            self._write(line + "\n", "")

    def _write(self, text: str, line: str) -> None:
        self._stream.write(text)
        self._stream.flush()
        self._shown, self._shown_at_s = line, time.monotonic()
