"""The container protocol: what a coordinator and its containers exchange, as classes.

The environment starts a container; over HTTP it reads its assignment and sends heartbeats, each answered by a
directive; its process ends with a `model.ending.ExitCode`. JSON is decoded, checked and documented
(`server.openapi`) from these classes alone. In a rolling change the two sides may be of different versions: fields
that a reader does not know are ignored, and fields that were added later have defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from grete import environment as env
from grete.errors import WireError
from grete.model.ending import ContainerEnd, as_document, from_document
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.job import TaskMode, TaskModel
from grete.model.startpoint import PendingStart, StateRequest
from grete.wire import startpoint_json, strict_json
from grete.wire.metric_values import ReportedMetrics

HELD_AT_MOST_S = 0.5
"""How long a coordinator may hold its answer to a heartbeat, and the time between heartbeats when it does not."""
HELD_AT_REST_S = 2.0
"""The same of a container of which there is nothing new to say."""
_BELOW = 2**63
Integer = Annotated[int, Meta(ge=-_BELOW, le=_BELOW - 1, extra_json_schema={"format": "int64"})]
Amount = Annotated[float, Meta(ge=0, lt=_BELOW)]
T = TypeVar("T")


class Command(StrEnum):
    """Commands to a container."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


class Directive(Struct, frozen=True):
    """The answer to a heartbeat.

    `number` of RUN grows whenever the container has to read its assignment again; that of PAUSE names the barrier.
    """

    action: Command
    number: Integer


class ReportedEnd(Struct, frozen=True):
    """What a container ends with, as its last heartbeat says it (`model.ending.ContainerEnd`)."""

    code: Integer
    failure: dict[str, str] | None = None

    @classmethod
    def of(cls, end: ContainerEnd) -> ReportedEnd:
        """From the model."""
        return cls(int(end), as_document(end.failure))

    def end(self) -> ContainerEnd:
        """As the model has it."""
        return ContainerEnd(self.code, from_document(self.failure))


class Heartbeat(Struct, frozen=True):
    """A container's report of itself.

    `records` counts the messages processed since it started. `serial` is the number of what it runs; `paused` the
    barrier at which it waits, 0 when at none. `commits` counts the batches that were committed, `commit_seconds` is
    the time that took in all, `last_commit_seconds` the last; `dead_letters` counts what these set aside.
    `cpu_seconds` is what shares of StreamTasks have computed since it started. `metrics` are in one of several.
    `trace` is that of the last batch that was traced, `outputs` the streams that a pipeline writes. `end` is in the
    last one. With `known`, the directive that the container has, the answer may be held until there is another one,
    for `hold_s`.
    """

    epoch: Integer
    state: str = "starting"
    batch_id: Integer = -1
    records: Integer = 0
    message: str = ""
    serial: Integer = 0
    paused: Integer = 0
    commits: Integer = 0
    commit_seconds: Amount = 0.0
    last_commit_seconds: Amount = 0.0
    cpu_seconds: Amount = 0.0
    dead_letters: Integer = 0
    trace: str = ""
    outputs: list[str] = []
    metrics: ReportedMetrics | UnsetType = UNSET
    end: ReportedEnd | UnsetType = UNSET
    known: Directive | UnsetType = UNSET
    hold_s: Amount = HELD_AT_MOST_S

    @property
    def is_at_work(self) -> bool:
        """Whether its work has begun and does not wait for anything but records."""
        return self.state == "running"


class Partition(Struct, frozen=True):
    """An SSP."""

    system: str
    stream: str
    partition: Integer

    @classmethod
    def of(cls, ssp: SystemStreamPartition) -> Partition:
        """The partition of an SSP."""
        return cls(ssp.system, ssp.stream, ssp.partition)

    def ssp(self) -> SystemStreamPartition:
        """As the model has it."""
        return SystemStreamPartition(self.system, self.stream, self.partition)


class PendingRequest(Struct, frozen=True):
    """An operator's request to a task that is not applied yet: startpoints by SSP, and what becomes of stores."""

    startpoints: dict[str, dict[str, Any]] = {}
    state: StateRequest | UnsetType = UNSET

    @classmethod
    def of(cls, start: PendingStart) -> PendingRequest:
        """From the model."""
        startpoints = {str(ssp): startpoint_json.document(one) for ssp, one in start.startpoints.items()}
        return cls(startpoints, UNSET if start.state is None else start.state)

    def start(self) -> PendingStart:
        """As the model has it.

        Raises:
            WireError: it names no SSP, or a startpoint is none.
        """
        startpoints = {
            SystemStreamPartition.parse(ssp): startpoint_json.from_document(one)
            for ssp, one in self.startpoints.items()
        }
        return PendingStart(startpoints, None if self.state is UNSET else self.state)


class Task(Struct, frozen=True):
    """A task of a container; `changelog_partition` is where its stores' changelogs live, for ever.

    `key_bucket` says which keys are the task's in an elastic job, and is -1 in others.
    """

    name: TaskName
    ssps: tuple[Partition, ...]
    changelog_partition: Integer
    pending: PendingRequest = PendingRequest()
    mode: TaskMode = TaskMode.ACTIVE
    key_bucket: Integer = -1

    @classmethod
    def of(cls, model: TaskModel, pending: PendingRequest) -> Task:
        """A task of the job model with what an operator asked for."""
        return cls(
            model.name,
            tuple(map(Partition.of, model.partitions)),
            model.changelog_partition,
            pending,
            model.mode,
            model.key_bucket,
        )


class AssignmentMessage(Struct, frozen=True, kw_only=True):
    """A container's share of the job model, with its configuration.

    `epoch` is that of its incarnation, `fence_epoch` the one of its commits: higher since it has given tasks away.
    `input_uids` identify the inputs that the job model was made of, by `system.stream`: a later one may have its
    name. One that `warms_up` has no tasks: the container gets ready for those that it is to have.
    """

    job: JobId
    container_id: ContainerId
    epoch: Integer
    fence_epoch: Integer | None = None
    serial: Integer = 0
    run_id: str = ""
    until_drained: bool = False
    config: dict[str, str]
    input_uids: dict[str, str] = {}
    tasks: tuple[Task, ...]
    warms_up: bool = False


def decode(data: bytes, kind: type[T]) -> T:
    """A value of the class from JSON, which is read strictly (`wire.strict_json`).

    Raises:
        WireError: not JSON, or not such a value; names the field.
    """
    return convert(strict_json.loads(data), kind)


def convert(document: Any, kind: type[T]) -> T:
    """A value of the class from parsed JSON.

    Raises:
        WireError: not such a value; names the field.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error


def document(value: Struct) -> dict[str, Any]:
    """The value as a JSON-able document, its fields in their order."""
    made: dict[str, Any] = msgspec.to_builtins(value)
    return made


@dataclass(frozen=True, slots=True)
class ContainerEnvironment:
    """The environment of a container. No secrets: the token is in a file (S2-57)."""

    container_id: ContainerId
    epoch: int
    coordinator_url: str
    token_file: Path
    coordinator_config: str
    """JSON, see `config.coordinator_config`."""
    home: Path
    is_thread: bool = False
    channel: str = ""
    """host:port where containers on other machines reach the coordinator; empty where there are none."""
    configured: Sequence[str] = ()
    """Names of the variables that its configuration refers to, which a launcher of processes passes on."""
    trace: str = ""
    """The `traceparent` of the submission or the fail-over that it is started for; else empty."""

    def variables(self) -> dict[str, str]:
        """The environment that a launcher passes on."""
        return {
            env.COORDINATOR_URL: self.coordinator_url,
            env.CONTAINER_ID: self.container_id,
            env.COORDINATOR_CONFIG: self.coordinator_config,
            env.HOME: str(self.home),
            env.TOKEN_FILE: str(self.token_file),
            env.CONTAINER_EPOCH: str(self.epoch),
            **({env.IN_PROCESS: "1"} if self.is_thread else {}),
            **({env.CHANNEL: self.channel} if self.channel else {}),
            **({env.TRACE: self.trace} if self.trace else {}),
            **({env.CONFIGURED: ",".join(self.configured)} if self.configured else {}),
        }

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> ContainerEnvironment:
        """From the environment of a container's process, or of its thread."""
        return cls(
            ContainerId(variables[env.CONTAINER_ID]),
            int(variables[env.CONTAINER_EPOCH]),
            variables[env.COORDINATOR_URL],
            Path(variables[env.TOKEN_FILE]),
            variables[env.COORDINATOR_CONFIG],
            env.grete_home(variables),
            variables.get(env.IN_PROCESS) == "1",
            variables.get(env.CHANNEL, ""),
            [name for name in variables.get(env.CONFIGURED, "").split(",") if name],
            variables.get(env.TRACE, ""),
        )

    def coordinator_system(self) -> dict[str, str]:
        """The configuration with which the container opens the coordinator stream."""
        config: dict[str, str] = json.loads(self.coordinator_config)
        return config
