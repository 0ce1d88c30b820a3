"""The state that the coordinator's decisions depend on: frozen values, changed only by `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from grete.config.settings.coordinator import RetryPolicy
from grete.model.ids import ContainerId


class Phase(StrEnum):
    """Where a job is. The last three are final."""

    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


FINAL = (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a container has failed since it last ran for the whole window, and how the last time was.

    It is started again `pause_s` after `at_s`. `fruitless` counts those in a row that had committed nothing; `place`
    names the message that could not be processed, if it was one.
    """

    count: int = 0
    at_s: float = 0.0
    pause_s: float = 0.0
    fruitless: int = 0
    reason: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Fingerprints of what a container runs: equal ones need nothing done (S0-24).

    `tasks` covers tasks and their SSPs, empty where it was given none; `query` what a streaming query is built from,
    `process` what a Spark application is started with.
    """

    tasks: str = ""
    query: str = ""
    process: str = ""
    standby: bool = field(default=False, compare=False)
    """It only keeps copies: the job neither waits for it nor fails with it."""


Specs = Mapping[ContainerId, ContainerSpec]


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container and its current incarnation, if it has one.

    `spec` is what the incarnation runs, or was last commanded to run. `launch` distinguishes incarnations. `fence`
    is the number under which it commits since it gave tasks away, 0 when that is its launch.
    """

    spec: ContainerSpec = ContainerSpec()
    launch: int = 0
    fence: int = 0
    running: bool = False
    pausing: bool = False
    """Commanded to pause, and not to run since."""
    paused: bool = False
    """Its query has ended at the barrier: it holds no task."""
    unsure: bool = False
    """Commanded to run something that it has not reported yet: its exit may be the end of something older."""
    replacing: bool = False
    """Asked to end, to be launched again if it is in the model then."""
    held: bool = False
    """Stopped by an operator, until it is started again."""
    broke_off: bool = False
    """The last incarnation has ended amid something, perhaps a batch, and none has come after it."""
    done: bool = False
    given_up: bool = False
    kill_at_s: float | None = None
    failures: Failures = Failures()
    restart_at_s: float | None = None
    """It has failed, and is started again then."""
    committed: bool = False
    """The incarnation has committed a batch."""
    untried: bool = False
    """Commanded to run another configuration, and not at work with it yet."""
    asked: str = ""
    """Why the incarnation was asked to end, if it was."""
    host: str = ""
    """Where an operator wants the next incarnation to run."""


@dataclass(frozen=True, slots=True)
class PendingModel:
    """A model that waits until the containers that lose tasks have let go of them: never two writers for a task.

    They have `pause_s` from when they are asked, until `deadline_s`. They are not asked yet while `warm_up_until_s`
    says how long containers that come may take to get ready; it is None when they are.
    """

    revision: int
    specs: Specs
    pause_s: float
    cause: str = ""
    warm_up_until_s: float | None = None
    deadline_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Barriers:
    """The changes to another model since this coordinator leads, the first one included.

    A change begins when containers are asked to let go of tasks, ends when the model is granted, and is over when
    all that were commanded to run it have said that they do. `timed_out` counts those whose deadline cut a container
    off. `began_s` is of the change that is not over yet; `last_s` is how long the last one took until it was.
    """

    started: int = 0
    ended: int = 0
    timed_out: int = 0
    began_s: float | None = None
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """Everything decisions depend on. `specs` are those of the model in force, whose number is `revision`."""

    retry: RetryPolicy
    phase: Phase = Phase.RUNNING
    containers: Mapping[ContainerId, ContainerState] = field(default_factory=dict)
    specs: Specs = field(default_factory=dict)
    revision: int = 0
    pending: PendingModel | None = None
    launches: int = 0
    kill_at_s: float | None = None
    message: str = ""
    barriers: Barriers = Barriers()
