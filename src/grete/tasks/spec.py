"""The values between driver and executors: a spec per container, a plan per batch, a report per task.

They travel inside Spark's own serialisation of our function and its answer; they hold plain values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grete.application.poison import PoisonPolicy
from grete.config.settings import Settings
from grete.diagnostics.streams import DiagnosticsConfig
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition, TaskName
from grete.wire.metric_values import Metrics


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task of this container. `ssps` are indexes into `RunnerSpec.ssps`; `key_bucket` as in `TaskModel`."""

    index: int
    name: TaskName
    ssps: tuple[int, ...]
    changelog_partition: int
    key_bucket: int = -1


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A store of every task and the changelog stream behind it.

    `changelog_uid` names this very incarnation of the stream: a file that was filled from another one, such as
    a stream deleted and created again, is foreign and is rebuilt. `ttl_ms` is the age at which entries expire.
    """

    name: str
    changelog_stream: str
    changelog_uid: str
    ttl_ms: int | None = None

    @property
    def is_expiring(self) -> bool:
        """Whether entries expire, so that values carry their times."""
        return self.ttl_ms is not None


@dataclass(frozen=True, slots=True)
class CommitSpec:
    """How workers commit what they processed, as long as the container's fence and the right of its epoch hold.

    `log_end` is where the checkpoint log ended before the container's commits were read from it. `outputs` are the
    declared ones; a task may send to others.
    """

    fence: Fence
    epoch: Fence
    checkpoint_log: str
    grouper: str
    log_end: int
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """Everything a worker needs that does not change while the container lives.

    `incarnation` differs between any two containers ever started, so that state cached in a reused Python worker
    is never taken for this container's. `home` is where an embedded system lies by default. In
    `standby_directories` there may be warm copies of the stores.
    """

    incarnation: str
    job: str
    settings: Settings
    task_class: str
    application_path: str | None
    ssps: tuple[SystemStreamPartition, ...]
    tasks: tuple[TaskSpec, ...]
    stores: tuple[StoreSpec, ...]
    store_directory: str
    default_system: str
    home: str
    commit: CommitSpec
    dead_letter_stream: str | None = None
    poison: PoisonPolicy = field(default_factory=lambda: PoisonPolicy(everything=True))
    """Which messages go to the dead letters, where there is a stream for them."""
    diagnostics: DiagnosticsConfig | None = None
    standby_directories: tuple[str, ...] = ()
    application_environment: str | None = None


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The committed state of a task: the attempt's token, store positions, and last offset by SSP index."""

    token: str = ""
    store_positions: Mapping[str, int] = field(default_factory=dict)
    last_offsets: Mapping[int, int] = field(default_factory=dict)


def advanced(progress: TaskProgress, report: TaskReport) -> TaskProgress:
    """The committed state of a task after what it reports."""
    return replace(
        progress,
        token=report.token,
        store_positions={**progress.store_positions, **report.positions},
        last_offsets={**progress.last_offsets, **report.last_offsets},
    )


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One attempt at a task's share of a batch. `positions` are where its changelogs end once it is committed.

    `metrics` are what the task's metrics gained. It says, too, up to which offset of the checkpoint log the
    commit reaches, which worker committed through which slot, and how many seconds that took. One
    that is made of a commit that was found has no counts.
    """

    task: int
    token: str
    records: int
    last_offsets: Mapping[int, int]
    dead_letters: int = 0
    shutdown_task: bool = False
    shutdown_all: bool = False
    positions: Mapping[str, int] = field(default_factory=dict)
    committed_at: int = -1
    slot: int = -1
    worker: str = ""
    commit_s: float = 0.0
    metrics: Metrics = field(default_factory=dict)
    batch_id: int = -1
