"""Identifiers, each with a type of its own, so that a stream name is never taken for a task name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from grete.errors import JobError, WireError

TaskName = NewType("TaskName", str)
"""Solely the name (S2-8): it is a key of the coordinator stream."""

ContainerId = NewType("ContainerId", str)
"""Samza's processor id. A string since Samza 0.13; readers also accept integers (section F, 11)."""


_LAST_PARTITION = 2**31 - 1  # a Java int


@dataclass(frozen=True, slots=True, order=True)
class JobId:
    """A job: name and id. The id defaults to "1" (S2-56)."""

    name: str
    id: str = "1"

    def __str__(self) -> str:
        """`name-id`: in the names of changelogs, as in Samza, where two jobs can have the same one (`x`, `y-1` and
        `x-y`, `1`). What is grete's own is named by `key`; for people there is `shown`.
        """
        return f"{self.name}-{self.id}"

    @property
    def key(self) -> str:
        """In the names of folders, fences and leaderships, never another job's: `name-id`, or `name@id` where the id
        holds a `-`. Neither part may hold a `@`.
        """
        return f"{self.name}@{self.id}" if "-" in self.id else str(self)

    @property
    def shown(self) -> str:
        """As messages name the job and `--job` takes it: `name`, or `name:id` where the id is not 1."""
        return self.name if self.id == "1" else f"{self.name}:{self.id}"

    @classmethod
    def parse(cls, text: str) -> JobId:
        """Read `name` or `name:id`.

        Raises:
            JobError: no name.
        """
        name, _, id_ = text.partition(":")
        if not name:
            raise JobError(f"a job is written name, or name:id, got {text!r}")
        return cls(name, id_ or "1")


@dataclass(frozen=True, slots=True, order=True)
class SystemStream:
    """A stream of a system. The stream's name may contain dots, the system's may not."""

    system: str
    stream: str

    def __str__(self) -> str:
        return f"{self.system}.{self.stream}"

    @classmethod
    def parse(cls, text: str) -> SystemStream:
        """Read `system.stream`; splits at the first dot."""
        system, dot, stream = text.partition(".")
        if not dot or not system or not stream:
            raise WireError(f"a stream is written system.stream, got {text!r}")
        return cls(system, stream)


@dataclass(frozen=True, slots=True, order=True)
class SystemStreamPartition:
    """A partition of a stream (SSP). `key_bucket` is -1, but in the job model of an elastic job."""

    system: str
    stream: str
    partition: int
    key_bucket: int = -1

    @property
    def system_stream(self) -> SystemStream:
        """The stream this partition belongs to."""
        return SystemStream(self.system, self.stream)

    @property
    def whole(self) -> SystemStreamPartition:
        """The partition without the key bucket: what is read, and what checkpoints, startpoints and lag are of."""
        return (
            self if self.key_bucket < 0 else SystemStreamPartition(self.system, self.stream, self.partition)
        )

    def __str__(self) -> str:
        """`system.stream.partition`, Samza's map-key form; it drops the key bucket."""
        return f"{self.system}.{self.stream}.{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SystemStreamPartition:
        """Read `system.stream.partition`, split at the first and the last dot (S2-28).

        Raises:
            WireError: no two dots, or the partition is not a number from zero to 2**31-1.
        """
        head, dot, partition = text.rpartition(".")
        system, dot2, stream = head.partition(".")
        if not dot or not dot2 or not system or not stream:
            raise WireError(
                f"System stream partition expected in format 'system.stream.partition', got {text!r}"
            )
        is_number = partition.isascii() and partition.isdigit() and len(partition.lstrip("0")) <= 10
        if not is_number or int(partition) > _LAST_PARTITION:
            raise WireError(f"the partition of {text!r} is not a number from zero to {_LAST_PARTITION}")
        return cls(system, stream, int(partition))


def ssp_label(ssp: SystemStreamPartition) -> str:
    """Java's toString of an SSP: a task's name when every SSP has its own task, a label in checkpoints."""
    bucket = f", {ssp.key_bucket}" if ssp.key_bucket >= 0 else ""
    return f"SystemStreamPartition [{ssp.system}, {ssp.stream}, {ssp.partition}{bucket}]"
