"""The pair of serdes that a stream or store has."""

from __future__ import annotations

from dataclasses import dataclass

from grete.api import Serde


@dataclass(frozen=True, slots=True)
class StreamSerdes:
    """Serdes of keys and of messages (values)."""

    key: Serde
    message: Serde
