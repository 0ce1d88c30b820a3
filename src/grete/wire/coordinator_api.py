"""Documents of the coordinator's HTTP API beside the container protocol, for operators and dashboards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from grete.model.ids import JobId
from grete.wire.container_protocol import Integer


class Refusal(Struct, frozen=True):
    """Why a request is refused."""

    message: str


class FencedResponse(Struct, frozen=True):
    """A newer incarnation of the container, of this epoch, is known: the one that asked has to end."""

    message: str
    epoch: Integer


class JobRequest(Struct, frozen=True):
    """A request to the job, or to a container: within how many seconds, and why; the history keeps the reason."""

    deadline_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    reason: Annotated[str, Meta(max_length=1_000)] = "over HTTP"


class ContainerRequest(JobRequest, frozen=True, kw_only=True):
    """A request to one container."""

    what: Literal["stop", "start", "restart"]


class Requested(Struct, frozen=True):
    """A request that is in the coordinator stream; `container` and `id` belong to one to a container."""

    requested: str
    container: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


class Job(Struct, frozen=True):
    """A running job.

    `state` is its phase, `standing` how it is in a word, `message` what is not as it should be, `problem` why a
    configuration in the stream is not followed, `sizing` what autosizing does, where the coordinator decides.
    `containers` are their last heartbeats, with the state of those that were given up or stopped and, in `spark`,
    Spark's own figures of a DataFrame pipeline. Of `quarantined` records the first are shown, `quarantined_count`
    counts all.
    """

    job: JobId
    state: str
    run_id: str
    epoch: Integer
    standing: str
    message: str
    problem: str
    sizing: str
    metrics: dict[str, Integer]
    containers: dict[str, dict[str, Any]]
    quarantined: list[str]
    quarantined_count: Integer
    monitor_problems: dict[str, str]


class HistoryRow(Struct, frozen=True):
    """A row of the history. Other fields belong to the event."""

    number: Integer
    timestamp_ms: Integer
    event: str


class PartitionLag(Struct, frozen=True):
    """Lag of an SSP in a task; `task` is null for a partition that no task reads yet.

    `checkpointed` is the last offset processed, `upcoming` the system's next, empty while it does not answer. `lag`
    counts messages and is null where offsets are no numbers.
    """

    task: str | None
    system: str
    stream: str
    partition: Integer
    checkpointed: str | None
    upcoming: str
    lag: Integer | None


class Lag(Struct, frozen=True):
    """Messages not processed yet: in all (null when unknown), by task, by partition; and missing input streams."""

    total: Integer | None
    tasks: dict[str, Integer]
    partitions: list[PartitionLag]
    missing: list[str]


class StoreRow(Struct, frozen=True):
    """An entry of a StreamTask's store, as the job's serdes read it, and the checkpoint of the commit it is of: last
    processed offsets by `system.stream.partition`.
    """

    task: str
    key: Any
    value: Any
    checkpoint: dict[str, str]


class StoreAnswer(Struct, frozen=True):
    """What a store has, each task's at its last commit."""

    store: str
    entries: list[StoreRow]
