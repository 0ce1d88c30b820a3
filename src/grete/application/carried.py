"""Errors on their way between a worker and the application's process: type, text and causes, as JSON.

An error of `grete.errors` is of the same class on the other side, one of Python's of a class derived from it, and any
other is one of the same name that derives from `Exception`. An error that was carried there and comes back, by itself
or as a cause, is the very same object.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from grete import errors
from grete.errors import ConfigError, GreteError
from grete.model.ending import causes

_LONGEST = 20_000
_PLACE = "_carried_place"


def describe_error(error: BaseException, place: int | None = None) -> dict[str, Any]:
    """The error with its causes. `place` is where its sender keeps it, for when it comes back."""
    chain = [
        {
            "type": type(one).__name__,
            "module": type(one).__module__,
            "text": str(one)[:_LONGEST],
            "repr": repr(one)[:_LONGEST],
            "place": getattr(one, _PLACE, None),
        }
        for one in causes(error)
    ]
    trace = "".join(traceback.format_exception(error))
    return {"chain": chain, "trace": trace[-_LONGEST:], "sent": place}


def rebuild_error(description: dict[str, Any], kept: Sequence[Exception] = ()) -> Exception:
    """The error that was described; `kept` are those that were carried to where it comes from."""
    rebuilt: list[Exception] = []
    for one in description["chain"]:
        place = one["place"]
        if place is not None and place < len(kept):
            rebuilt.append(kept[place])
            break
        rebuilt.append(_made(one))
    for error, cause in pairwise(rebuilt):
        error.__cause__ = cause
    first = rebuilt[0]
    if not any(first is one for one in kept):
        first.add_note("in the application's process:\n" + description["trace"].rstrip())
    if description["sent"] is not None:
        setattr(first, _PLACE, description["sent"])
    return first


def _made(one: dict[str, Any]) -> Exception:
    text, shown = one["text"], one["repr"]
    own = getattr(errors, one["type"], None) if one["module"] == errors.__name__ else None
    if isinstance(own, type) and issubclass(own, GreteError):
        made = own.__new__(own, text)
        if isinstance(made, ConfigError):
            made.problems = (text,)
        return made
    found = getattr(builtins, one["type"], None) if one["module"] == "builtins" else None
    base: type[Exception] = Exception
    if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, ExceptionGroup):
        base = found
    members = {"__str__": lambda self: text, "__repr__": lambda self: shown, "__module__": one["module"]}
    kind: type[Exception] = type(one["type"], (base,), members)
    return kind.__new__(kind, text)
