"""JSON for grete's own documents: nothing ambiguous gets in (RELIABILITY section 3, "Python json traps")."""

from __future__ import annotations

import json
from typing import Any

from grete.errors import WireError
from grete.wire.java_json import check_depth

_MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 32


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def loads(data: bytes, *, max_bytes: int = _MAX_BYTES, max_depth: int = _MAX_DEPTH) -> Any:
    """Parse exactly one JSON value: strict UTF-8, unique keys, no NaN, no lone surrogates, bounded.

    Raises:
        WireError: saying which of these failed.
    """
    if len(data) > max_bytes:
        raise WireError(f"{len(data)} bytes of JSON, at most {max_bytes} are read")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    check_depth(value, max_depth)
    return value
