"""What a container is told by its coordinator: the document of `/api/v1/containers/{id}`, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.config.folders import standby_directory, state_directory
from grete.errors import WireError
from grete.model.fence import Fence, container_fence
from grete.model.ids import ContainerId, JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.model.startpoint import PendingStart, StateChoice, StateRequest
from grete.wire import startpoint_json


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


@dataclass(frozen=True, slots=True)
class Assignment:
    """The container's share of the job model, with the epoch of its incarnation and the one that fences its commits.

    `serial` numbers what the container was told to run; a higher one in the answer to a heartbeat means: read anew.
    `until_drained` ends the container when what is there is consumed. `input_uids` tell the inputs that the job model
    was made of from later ones of the same name.
    """

    job: JobId
    container_id: ContainerId
    epoch: int
    config: Mapping[str, str]
    tasks: tuple[AssignedTask, ...]
    serial: int = 0
    until_drained: bool = False
    input_uids: Mapping[SystemStream, str] = field(default_factory=dict)
    fence_epoch: int | None = None
    """Higher than `epoch` since the container has given tasks away; None is `epoch`."""

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
        """Where the container keeps lineages and store files."""
        return state_directory(self.config, self.job, home) / f"container-{self.container_id}"

    def store_directory(self, home: Path) -> Path:
        """Store files are kept by task, not by container: a task that moves on one host finds its files."""
        return self.state_directory(home).parent / "stores"

    def standby_directory(self, home: Path, replica: int) -> Path:
        """Where standby containers keep copies of store files; by task, too."""
        return standby_directory(self.config, self.job, home) / f"standby-{replica}"


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
            until_drained=bool(document.get("until_drained", False)),
            fence_epoch=int(document["fence_epoch"]) if "fence_epoch" in document else None,
            input_uids={SystemStream.parse(k): str(v) for k, v in document.get("input_uids", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"the coordinator's assignment is not understood: {error!r}") from error


def _task(document: Mapping[str, Any]) -> AssignedTask:
    ssps = (
        SystemStreamPartition(ssp["system"], ssp["stream"], int(ssp["partition"])) for ssp in document["ssps"]
    )
    return AssignedTask(
        TaskName(document["name"]),
        tuple(sorted(ssps)),
        int(document["changelog_partition"]),
        _pending(document.get("pending", {})),
        TaskMode(document.get("mode", TaskMode.ACTIVE)),
    )


def pending_document(pending: PendingStart) -> dict[str, Any]:
    """A task's pending startpoints as the coordinator's document carries them."""
    made: dict[str, Any] = {
        "startpoints": {str(ssp): startpoint_json.document(one) for ssp, one in pending.startpoints.items()}
    }
    if pending.state is not None:
        state = pending.state
        made["state"] = {
            "choice": state.choice.value,
            "created_ms": state.created_ms,
            "positions": dict(state.positions),
        }
    return made


def _pending(document: Mapping[str, Any]) -> PendingStart:
    startpoints = {
        SystemStreamPartition.parse(ssp): startpoint_json.from_document(one)
        for ssp, one in document.get("startpoints", {}).items()
    }
    state = document.get("state")
    if state is None:
        return PendingStart(startpoints)
    positions = {str(name): int(end) for name, end in state["positions"].items()}
    request = StateRequest(StateChoice(state["choice"]), int(state["created_ms"]), positions)
    return PendingStart(startpoints, request)
