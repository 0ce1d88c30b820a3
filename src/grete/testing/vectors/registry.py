"""Which function checks which file of vectors, and how a difference is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from grete.errors import GreteError

Case = dict[str, Any]
Check = Callable[[Case], None]
_checks: dict[str, Check] = {}


class Difference(AssertionError):
    """What we computed is not what the real Samza wrote."""


def checker(*names: str) -> Callable[[Check], Check]:
    """Register a function as the check of every case of the files with these names (without .json)."""

    def register(check: Check) -> Check:
        for name in names:
            _checks[name] = check
        return check

    return register


def find(name: str) -> Check | None:
    """The check for a file: by its exact name, else by the longest registered name that its name begins with."""
    found = [known for known in _checks if name == known or name.startswith((f"{known}_", f"{known}-"))]
    return _checks[max(found, key=len)] if found else None


def same(what: str, got: Any, expected: Any) -> None:
    """Compare.

    Raises:
        Difference: they differ.
    """
    if got != expected:
        raise Difference(f"{what}: expected {_short(expected)}, got {_short(got)}")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"


def throws(expected: Any) -> bool:
    """Whether the real one raised an exception there."""
    return isinstance(expected, dict) and "throws" in expected


def result_of(compute: Callable[[], Any], expected: Any, what: str) -> Any:
    """What `compute` returns, or `expected` itself when both ours and the real one raise an error.

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
