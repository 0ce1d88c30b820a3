"""Startpoints: where an operator wants a task or SSP to start next (SEP-18)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from grete.model.ids import SystemStreamPartition


class StartpointKind(StrEnum):
    """The four kinds, by their names on the wire."""

    OLDEST = "StartpointOldest"
    UPCOMING = "StartpointUpcoming"
    SPECIFIC = "StartpointSpecific"
    TIMESTAMP = "StartpointTimestamp"


@dataclass(frozen=True, slots=True)
class Startpoint:
    """`offset` belongs to SPECIFIC and is the next to be read; `timestamp_ms` belongs to TIMESTAMP."""

    kind: StartpointKind
    created_ms: int
    offset: str | None = None
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        """As `--to` takes it."""
        match self.kind:
            case StartpointKind.SPECIFIC:
                return f"offset:{self.offset}"
            case StartpointKind.TIMESTAMP:
                return f"timestamp:{self.timestamp_ms}"
            case _:
                return self.kind.removeprefix("Startpoint").lower()


class StateChoice(StrEnum):
    """Fate of a task's stores when it starts elsewhere."""

    KEEP = "keep"
    RESTORE = "restore"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Fate of a task's stores when its startpoints of `created_ms` are applied.

    `positions` belongs to RESTORE: per store, the end of the changelog that makes up the state to go back to.
    """

    choice: StateChoice
    created_ms: int
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingStart:
    """Requests to a task that it has not applied: startpoints by SSP, and the fate of its stores."""

    startpoints: Mapping[SystemStreamPartition, Startpoint] = field(default_factory=dict)
    state: StateRequest | None = None
