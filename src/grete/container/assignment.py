"""A container's assignment: the coordinator's document, with the folders and the fence it implies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.config.paths import absolute_paths
from grete.config.settings import Settings
from grete.model.fence import Fence, container_fence
from grete.model.ids import ContainerId, JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.model.startpoint import PendingStart
from grete.wire import container_protocol as protocol


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task of the container; `changelog_partition` is where its stores' changelogs live, for ever.

    `pending` is what an operator asked for; the task looks itself which of it it has applied already.
    """

    name: TaskName
    ssps: tuple[SystemStreamPartition, ...]
    changelog_partition: int
    pending: PendingStart = field(default_factory=PendingStart)
    mode: TaskMode = TaskMode.ACTIVE
    key_bucket: int = -1
    """Of an elastic job; see `TaskModel`."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The container's share of the job model, with the epoch of its incarnation and the one that fences its commits.

    `serial` is the number of the assignment; a higher one in a directive means: read the assignment again.
    `until_drained` ends the container when what is there is consumed. `input_uids` distinguish the inputs that the
    job model was made of from later ones of the same name.
    """

    job: JobId
    container_id: ContainerId
    epoch: int
    settings: Settings
    tasks: tuple[AssignedTask, ...]
    serial: int = 0
    until_drained: bool = False
    input_uids: Mapping[SystemStream, str] = field(default_factory=dict)
    fence_epoch: int | None = None
    """Higher than `epoch` since the container has given tasks away; None is `epoch`."""
    warms_up: bool = False
    """It has no tasks: the container gets ready for those that it is to have."""

    @property
    def ssps(self) -> tuple[SystemStreamPartition, ...]:
        """Every input of the container once, sorted."""
        return tuple(sorted({ssp for task in self.tasks for ssp in task.ssps}))

    @property
    def is_standby(self) -> bool:
        """Whether the container only keeps warm copies of stores."""
        return bool(self.tasks) and all(task.mode is TaskMode.STANDBY for task in self.tasks)

    @property
    def fence(self) -> Fence:
        """The fence of this container's commits."""
        epoch = self.epoch if self.fence_epoch is None else self.fence_epoch
        return container_fence(self.job, self.container_id, epoch)

    def state_directory(self, home: Path) -> Path:
        """Where the container keeps its files."""
        return self.settings.job.state_directory(self.job, home) / f"container-{self.container_id}"

    def lineage_place(self, home: Path) -> Path | str:
        """Where the container of a pipeline keeps lineages; a text is an address of Hadoop's."""
        return self.settings.job.container_lineages(self.job, home, self.container_id)

    def store_directory(self, home: Path) -> Path:
        """Store files are kept by task, not by container: a task that moves on one host finds its files."""
        return self.state_directory(home).parent / "stores"

    def standby_directory(self, home: Path, replica: int) -> Path:
        """Where standby containers keep copies of store files; by task, too."""
        return self.settings.job.standby_directory(self.job, home) / f"standby-{replica}"


def parse_assignment(document: Any, folder: Path) -> Assignment:
    """Read the coordinator's document, parsed from JSON; paths in it are from `folder`.

    Raises:
        WireError: a field is missing or of another type; names it.
    """
    read = protocol.convert(document, protocol.AssignmentMessage)
    return Assignment(
        job=read.job,
        container_id=read.container_id,
        epoch=read.epoch,
        settings=Settings.of(absolute_paths(read.config, folder)),
        tasks=tuple(sorted(map(_task, read.tasks), key=lambda task: task.name)),
        serial=read.serial,
        until_drained=read.until_drained,
        fence_epoch=read.fence_epoch,
        warms_up=read.warms_up,
        input_uids={SystemStream.parse(stream): uid for stream, uid in read.input_uids.items()},
    )


def _task(task: protocol.Task) -> AssignedTask:
    ssps = tuple(sorted(one.ssp() for one in task.ssps))
    pending = task.pending.start()
    return AssignedTask(task.name, ssps, task.changelog_partition, pending, task.mode, task.key_bucket)
