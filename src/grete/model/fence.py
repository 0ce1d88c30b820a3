"""The right to write, as every store checks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write in `scope`, as long as nobody has raised it above `epoch`."""

    scope: str
    epoch: int
