"""Startpoints: where an operator wants a task or SSP to start next (SEP-18)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StartpointKind(StrEnum):
    """The four kinds, by their names on the wire."""

    OLDEST = "StartpointOldest"
    UPCOMING = "StartpointUpcoming"
    SPECIFIC = "StartpointSpecific"
    TIMESTAMP = "StartpointTimestamp"


@dataclass(frozen=True, slots=True)
class Startpoint:
    """`offset` belongs to SPECIFIC, `timestamp_ms` to TIMESTAMP."""

    kind: StartpointKind
    created_ms: int
    offset: str | None = None
    timestamp_ms: int | None = None
