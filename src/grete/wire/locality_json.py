"""Samza's LocalityModel as JSON, which its coordinators serve under /locality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grete.errors import WireError
from grete.wire import java_json

_FIELDS = ("id", "host", "jmx-url", "jmx-tunneling-url")


def document(row: tuple[str | None, ...]) -> dict[str, str | None]:
    """One processor's locality: id, host, JMX URL, JMX tunnelling URL."""
    return dict(zip(_FIELDS, row, strict=True))


def encode(model: Mapping[str, tuple[str | None, ...]]) -> bytes:
    """Localities by processor id."""
    return java_json.dumps({"processor-localities": {id_: document(row) for id_, row in model.items()}})


def decode(data: bytes) -> dict[str, tuple[str | None, ...]]:
    """Read them; unknown fields are ignored, missing ones are None.

    Raises:
        WireError: not a locality model.
    """
    read: Any = java_json.loads(data)
    try:
        return {
            id_: tuple(row.get(field) for field in _FIELDS)
            for id_, row in read["processor-localities"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"not a locality model: {error!r}") from error
