"""Which function checks which file of vectors, and how a difference is reported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from grete.errors import GreteError

Case = dict[str, Any]
Check = Callable[[Case], None]
_checks: dict[str, Check] = {}
_shapes: list[tuple[Callable[[Case], bool], Check]] = []
_stories: dict[str, Callable[[Sequence[Case]], None]] = {}
COMMENTS = frozenset({"about", "comment", "description", "note", "reason", "why"})
"""Fields of a case that explain it."""


class Difference(AssertionError):
    """Our result differs from the real Samza's."""


def checker(*names: str, knows: Callable[[Case], bool]) -> Callable[[Check], Check]:
    """Register a function as the check of every case of the files with these names (without .json).

    `knows` recognises its cases by their content, for files of other names.
    """

    def register(check: Check) -> Check:
        for name in names:
            _checks[name] = check
        _shapes.append((knows, check))
        return check

    return register


def has_op(*ops: str) -> Callable[[Case], bool]:
    """Cases of one of these operations."""
    return lambda case: case.get("op") in ops


def has_fields(*fields: str) -> Callable[[Case], bool]:
    """Cases without an operation that have these fields."""
    return lambda case: "op" not in case and all(field in case for field in fields)


def story(name: str) -> Callable[[Callable[[Sequence[Case]], None]], None]:
    """Register an observer of each file's cases before they are checked, since those of `name` belong together."""

    def register(begin: Callable[[Sequence[Case]], None]) -> None:
        _stories[name] = begin

    return register


def begin_file(cases: Sequence[Case]) -> None:
    """Before the cases of a file are checked: nothing of the file before is left."""
    for begin in _stories.values():
        begin(cases)


def find(name: str) -> Check | None:
    """The check for a file: by its exact name, else by the longest registered name that is in its name."""
    padded = f"_{re.sub(r'[^A-Za-z0-9]+', '_', name)}_"
    found = [known for known in _checks if f"_{known}_" in padded]
    return _checks[max(found, key=len)] if found else None


def find_by_case(case: Case) -> Check | None:
    """The one check whose cases look like this; None when there is none, or several."""
    found = [check for knows, check in _shapes if knows(case)]
    return found[0] if len(found) == 1 else None


def same(what: str, got: Any, expected: Any) -> None:
    """Compare.

    Raises:
        Difference: they differ.
    """
    if got != expected:
        raise Difference(f"{what}: expected {_short(expected)}, got {_short(got)}")


def java_utf8(text: str) -> bytes:
    """As Java's getBytes(UTF_8) writes it: half a surrogate pair is a question mark."""
    return text.encode("utf-8", "replace")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"


def throws(expected: Any) -> bool:
    """Whether the real one raised an exception there."""
    return isinstance(expected, dict) and "throws" in expected


def result_of(compute: Callable[[], Any], expected: Any, what: str) -> Any:
    """The result of `compute`, or `expected` itself when both ours and the real one raise an error.

    Raises:
        Difference: only one of the two raises.
    """
    try:
        got = compute()
    except GreteError as error:
        if throws(expected):
            return expected
        raise Difference(f"{what}: expected {_short(expected)}, we raise {error}") from error
    if throws(expected):
        raise Difference(f"{what}: the real one throws {expected['throws']}, we return {_short(got)}")
    return got
