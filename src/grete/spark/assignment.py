"""What a container is told by its coordinator: the document of `/api/v1/containers/{id}`, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grete.errors import WireError
from grete.model.fence import Fence
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task of the container; `changelog_partition` is where its stores' changelogs live, for ever."""

    name: TaskName
    ssps: tuple[SystemStreamPartition, ...]
    changelog_partition: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The container's share of the job model, with the epoch that fences its commits.

    `serial` numbers what the container was told to run; a higher one in the answer to a heartbeat means: read anew.
    """

    job: JobId
    container_id: ContainerId
    epoch: int
    config: Mapping[str, str]
    tasks: tuple[AssignedTask, ...]
    serial: int = 0

    @property
    def ssps(self) -> tuple[SystemStreamPartition, ...]:
        """Every input of the container once, sorted."""
        return tuple(sorted({ssp for task in self.tasks for ssp in task.ssps}))

    @property
    def fence(self) -> Fence:
        """The fence of this container's commits."""
        return Fence(f"container/{self.job}/{self.container_id}", self.epoch)

    def state_directory(self, home: Path) -> Path:
        """Where the container keeps lineages and store files."""
        base = Path(self.config.get("job.state.dir", str(home / "jobs")))
        return base / str(self.job) / f"container-{self.container_id}"

    def store_directory(self, home: Path) -> Path:
        """Store files are kept by task, not by container: a task that moves on one host finds its files."""
        return self.state_directory(home).parent / "stores"


def parse_assignment(document: Mapping[str, Any]) -> Assignment:
    """Read the coordinator's document.

    Raises:
        WireError: a field is missing or of another type; names it.
    """
    try:
        tasks = tuple(_task(task) for task in document["tasks"])
        return Assignment(
            job=JobId(document["job"]["name"], document["job"]["id"]),
            container_id=ContainerId(str(document["container_id"])),
            epoch=int(document["epoch"]),
            config=dict(document["config"]),
            tasks=tuple(sorted(tasks, key=lambda task: task.name)),
            serial=int(document.get("serial", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the coordinator's assignment is not understood: {error!r}") from error


def _task(document: Mapping[str, Any]) -> AssignedTask:
    ssps = (
        SystemStreamPartition(ssp["system"], ssp["stream"], int(ssp["partition"])) for ssp in document["ssps"]
    )
    return AssignedTask(TaskName(document["name"]), tuple(sorted(ssps)), int(document["changelog_partition"]))
