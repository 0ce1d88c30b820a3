"""Tables that may be long: searched, sorted and cut into pages by the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

_SIZE = 100


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a table, and the links to the others."""

    rows: Sequence[dict[str, Any]]
    total: int
    found: int
    number: int
    pages: int
    search: str
    sort: str

    def link(self, **changes: str | int) -> str:
        """The query of this table with something else."""
        given = {"q": self.search, "sort": self.sort, "page": self.number, **changes}
        return "?" + urlencode({name: value for name, value in given.items() if value})

    def sorted_by(self, column: str) -> str:
        """The link that sorts by a column, the other way round when it is sorted by it."""
        return self.link(sort=f"-{column}" if self.sort == column else column, page=1)

    def direction(self, column: str) -> str:
        """As `aria-sort` has it."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "none")


def paged(
    rows: Sequence[dict[str, Any]], query: Mapping[str, str], columns: Sequence[str], *, size: int = _SIZE
) -> Page:
    """The page of these rows that a query asks for; columns are those by which it may be searched and sorted."""
    text = query.get("q", "")[:200]
    found = [one for one in rows if not text or any(text.lower() in str(one[c]).lower() for c in columns)]
    sort = query.get("sort", "")
    column = sort.removeprefix("-")
    if column in columns:
        found.sort(key=lambda one: _order(one[column]), reverse=sort.startswith("-"))
    else:
        sort = ""
    pages = max(1, -(-len(found) // size))
    wanted = query.get("page", "1")
    number = min(pages, max(1, int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 1))
    shown = found[(number - 1) * size : number * size]
    return Page(shown, len(rows), len(found), number, pages, text, sort)


def _order(value: Any) -> tuple[int, float, str]:
    """Nothing first, then numbers, then texts; a text of digits is a number."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float) or (isinstance(value, str) and value.isdecimal()):
        return 1, float(value), ""
    return 2, 0.0, str(value)
