"""How commands print: JSON documents, JSON lines, aligned tables."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from grete.text_logs import printable

_LEAST_SHOWN = 30
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON may hold and a terminal must not get."""


def print_json(document: Any) -> None:
    """One JSON document."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    sys.stdout.write(_NOT_PRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


def print_json_line(document: Mapping[str, Any]) -> None:
    """One JSON object on a line of its own; what is no text (a lone surrogate) is escaped."""
    sys.stdout.write(json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, cut_last: bool = False) -> None:
    """Columns, aligned; numbers to the right, None as a dash.

    `cut_last` keeps each line within a terminal's width, but for a few words of the last column.
    """
    cells = [list(headings), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    right = [any(_is_number(row[i]) for row in rows) for i in range(len(headings))]
    for row in cells:
        line = "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        )
        print(_within_terminal(line, sum(widths[:-1]) + 2 * len(widths)) if cut_last else line.rstrip())


def _within_terminal(line: str, begin_of_last: int) -> str:
    line = line.rstrip()
    if not sys.stdout.isatty():
        return line
    width = max(shutil.get_terminal_size().columns, begin_of_last + _LEAST_SHOWN)
    return line if len(line) <= width else line[: width - 1] + "…"


def print_paragraphs(texts: Mapping[str, Any]) -> None:
    """A line for each text that there is, as long as it is, after its name."""
    for name, text in texts.items():
        if text:
            print(f"{name}: {cell(text)}")


def cell(value: Any) -> str:
    """A value in a table: thousands separated, two decimals, None as a dash, control characters escaped."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if _is_number(value):
        return f"{value:,}"
    return printable(str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
