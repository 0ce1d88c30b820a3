"""The right to write, as every store checks it."""

from __future__ import annotations

from dataclasses import dataclass

from grete.model.ids import ContainerId, JobId


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write in `scope`, as long as nobody has raised it above `epoch`."""

    scope: str
    epoch: int


def container_fence(job: JobId, container: ContainerId, epoch: int) -> Fence:
    """The right to write what a container writes."""
    return Fence(f"container/{job.key}/{container}", epoch)
