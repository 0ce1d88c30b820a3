"""The right to write, as every store checks it."""

from __future__ import annotations

from dataclasses import dataclass

from grete.model.ids import ContainerId, JobId


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write in `scope`, as long as it has not been raised above `epoch`."""

    scope: str
    epoch: int


_LAUNCHES_PER_LEADERSHIP_BITS = 20


def job_scope(job: JobId) -> str:
    """The scope of a job's leadership and of its coordinator's fence."""
    return f"job/{job.key}"


def processors_scope(job: JobId) -> str:
    """The scope of the cells of a job's processors, their membership among them."""
    return f"processors/{job.key}"


def container_scopes(job: JobId) -> str:
    """The prefix of the scopes of the job's containers."""
    return f"container/{job.key}/"


def container_fence(job: JobId, container: ContainerId, epoch: int) -> Fence:
    """The fence of a container's commits."""
    return Fence(f"{container_scopes(job)}{container}", epoch)


def slot_scope(fence: Fence, slot: int) -> str:
    """The scope of a slot of the fence's scope: its epoch is the number of workers that have opened it."""
    return f"slot/{fence.scope}/{slot}"


def epoch_scope(fence: Fence) -> str:
    """The scope of the epochs of the fence's scope: its epoch is the number of them that have begun."""
    return f"epoch/{fence.scope}"


def container_epoch(leadership_epoch: int, launch: int) -> int:
    """The fence epoch of a launch: grows with every launch of every leader, so it never repeats."""
    return (leadership_epoch << _LAUNCHES_PER_LEADERSHIP_BITS) | launch


def leadership_of(epoch: int) -> int:
    """The epoch of the leader that has launched, or fenced off, a container under this one."""
    return epoch >> _LAUNCHES_PER_LEADERSHIP_BITS
