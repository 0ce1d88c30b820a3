"""Samza's LocalityModel as JSON, which its coordinators serve under /locality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grete.errors import WireError
from grete.wire import jackson_bytes, java_json

_FIELDS = ("id", "host", "jmx-url", "jmx-tunneling-url")


@dataclass(frozen=True, slots=True)
class ProcessorLocality:
    """A processor's host, and the two JMX URLs that Samza keeps beside it; None where a writer left it out."""

    id: str | None
    host: str | None
    jmx_url: str | None = ""
    jmx_tunneling_url: str | None = ""


def document(locality: ProcessorLocality) -> dict[str, str | None]:
    """One processor's locality."""
    values = (locality.id, locality.host, locality.jmx_url, locality.jmx_tunneling_url)
    return dict(zip(_FIELDS, values, strict=True))


def encode(model: Mapping[str, ProcessorLocality]) -> bytes:
    """Localities by processor id."""
    return java_json.dumps({"processor-localities": {id_: document(one) for id_, one in model.items()}})


def decode(data: bytes) -> dict[str, ProcessorLocality]:
    """Read them; unknown fields are ignored, missing ones are None, numbers where texts belong are texts.

    Raises:
        WireError: not a locality model.
    """
    read: Any = java_json.loads(data)
    try:
        return {
            id_: ProcessorLocality(*(jackson_bytes.as_text(row.get(field)) for field in _FIELDS))
            for id_, row in read["processor-localities"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"not a locality model: {error!r}") from error
