"""Events that reach a coordinator, and the actions that it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.state import ContainerSpec
from grete.model.ending import ExitCode
from grete.model.ids import ContainerId

# --- events ---


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """The containers of this revision are to run: at the start, and whenever configuration or inputs change.

    Containers that lose or gain tasks have `deadline_s` to reach a batch boundary.
    """

    revision: int
    specs: Mapping[ContainerId, ContainerSpec]
    deadline_s: float = 30.0
    cause: str = ""
    """The change, for people."""


@dataclass(frozen=True, slots=True)
class ReloadRequested:
    """The containers have to rebuild their queries from what the coordinator serves now (a rewind, for example)."""

    containers: tuple[ContainerId, ...]


@dataclass(frozen=True, slots=True)
class ContainerPaused:
    """An incarnation says that its query has ended for the barrier of `revision`."""

    container: ContainerId
    launch: int
    revision: int


@dataclass(frozen=True, slots=True)
class ContainerLoaded:
    """An incarnation reports that it runs the assignment of this number."""

    container: ContainerId
    launch: int
    serial: int


@dataclass(frozen=True, slots=True)
class ContainerAtWork:
    """An incarnation reports that its work has begun, by the assignment of this number."""

    container: ContainerId
    launch: int
    serial: int


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """A container ended. `launch` says which incarnation, `place` which message could not be processed, if one."""

    container: ContainerId
    launch: int
    exit_code: int
    reason: str = ""
    place: str = ""
    left: bool = False
    """It ended as its processor left the job: no failure of the container."""

    @property
    def is_clean(self) -> bool:
        """Whether it ended by itself, between two batches: nothing of it commits any more."""
        return self.exit_code in (ExitCode.OK, ExitCode.STOPPED)


@dataclass(frozen=True, slots=True)
class ContainerCommitted:
    """An incarnation has committed a batch."""

    container: ContainerId
    launch: int


@dataclass(frozen=True, slots=True)
class ContainerSilent:
    """An incarnation may be dead, paused or cut off: nothing was heard of it, or of its processor, for too long."""

    container: ContainerId
    launch: int
    reason: str
    left: bool = False
    """As of `ContainerExited`."""


@dataclass(frozen=True, slots=True)
class ContainerRequested:
    """An operator wants one container to `stop` (and stay stopped), `start` or `restart`, perhaps on a `host`."""

    container: ContainerId
    what: str
    deadline_s: float = 30.0
    reason: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class RetreatRefused:
    """There is no way back from the configuration with which this container has failed."""

    container: ContainerId
    reason: str


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The retry policy in force from now on."""

    retry: RetryPolicy


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A request to end the job at a batch boundary, within `deadline_s`."""

    deadline_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepDownRequested:
    """A request to let another coordinator lead, while containers go on.

    `ends_process`: the process is about to end, and with it containers that do not outlive it.
    """

    reason: str = ""
    ends_process: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


ContainerEvent = (
    ContainerPaused
    | ContainerLoaded
    | ContainerAtWork
    | ContainerExited
    | ContainerCommitted
    | ContainerSilent
    | ContainerRequested
)
Event = (
    ModelChanged
    | ReloadRequested
    | ContainerEvent
    | RetreatRefused
    | PolicyChanged
    | StopRequested
    | StepDownRequested
    | Tick
)


# --- actions ---


@dataclass(frozen=True, slots=True)
class Grant:
    """Serve this revision's model from now on: no task is held by a container that loses it."""

    revision: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the container as incarnation `launch`, on the host that an operator has asked for, if one has.

    With a `barrier` it has no tasks yet: it gets ready, and waits for them as one that pauses there.
    """

    container: ContainerId
    launch: int
    host: str = ""
    barrier: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask the container to end its query at the next batch boundary and to wait."""

    container: ContainerId
    revision: int


@dataclass(frozen=True, slots=True)
class Run:
    """Command the container to run what is served, with a new query."""

    container: ContainerId


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Ask the container to stop at the next batch boundary."""

    container: ContainerId


@dataclass(frozen=True, slots=True)
class FenceOff:
    """Raise the container's fence, so that no incarnation before `launch` can commit any more."""

    container: ContainerId
    launch: int


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Raise the fence of a container that goes on, so that it commits nothing more until it is commanded to run.

    Then it has the epoch of `fence`. What it still does for tasks that it gives away is refused, whatever it said.
    """

    container: ContainerId
    fence: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End the container now."""

    container: ContainerId


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Write a row of history."""

    event: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Retreat:
    """Make the configuration before the one in force the job's again: with this one the container does not run."""

    container: ContainerId
    reason: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """End this coordinator and let another one lead, if containers outlive it or its process ends anyhow."""

    reason: str
    ends_process: bool = False


Action = (
    Grant
    | Launch
    | Pause
    | Run
    | RequestStop
    | FenceOff
    | RaiseFence
    | Kill
    | RecordHistory
    | Retreat
    | StepDown
)
