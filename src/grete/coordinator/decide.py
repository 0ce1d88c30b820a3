"""What the coordinator does next: a pure function from state and event to new state and actions.

No I/O, clock, thread or log here, so that every order of events can be tried by a seeded simulator. The loop
(`coordinator.loop`) executes the actions, each only while the leadership under which it was decided is valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

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
class RetryPolicy:
    """Samza's cluster-manager.container.retry.*: `count` failures within `window_s`; 0 fails at once, <0 never."""

    count: int = 8
    window_s: float = 300.0
    fail_job: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """A container of the model. `launch` counts launches; `failures` are times within the retry window."""

    launch: int = 0
    running: bool = False
    done: bool = False
    given_up: bool = False
    failures: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Everything decisions depend on."""

    retry: RetryPolicy
    phase: Phase = Phase.RUNNING
    containers: Mapping[ContainerId, Container] = field(default_factory=dict)
    launches: int = 0
    kill_at_s: float | None = None
    message: str = ""


# --- events ---


@dataclass(frozen=True, slots=True)
class Started:
    """The model is served; its containers may be launched."""

    containers: tuple[ContainerId, ...]


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """A container ended. `launch` says which incarnation."""

    container: ContainerId
    launch: int
    exit_code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the job to end at a batch boundary, within `deadline_s`."""

    deadline_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Started | ContainerExited | StopRequested | Tick


# --- actions ---


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the container as incarnation `launch`."""

    container: ContainerId
    launch: int


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Ask the container to stop at the next batch boundary."""

    container: ContainerId


@dataclass(frozen=True, slots=True)
class Kill:
    """End the container now."""

    container: ContainerId


@dataclass(frozen=True, slots=True)
class Record:
    """Write a row of history."""

    event: str
    details: Mapping[str, str]


Action = Launch | RequestStop | Kill | Record

EXIT_CONFIG = 2
EXIT_FENCED = 5
_MEANING = {0: "ended", EXIT_CONFIG: "configuration error", 3: "poison message", EXIT_FENCED: "fenced"}


def decide(state: State, event: Event, now_s: float) -> tuple[State, tuple[Action, ...]]:
    """The next state and what to do. In a final phase nothing happens any more."""
    if state.phase in FINAL:
        return state, ()
    match event:
        case Started():
            return _start(state, event)
        case ContainerExited():
            return _exited(state, event, now_s)
        case StopRequested():
            return _stop(state, event, now_s)
        case Tick():
            return _tick(state, now_s)


def _start(state: State, event: Started) -> tuple[State, tuple[Action, ...]]:
    actions: list[Action] = []
    for container in event.containers:
        state, launch = _launch(state, container)
        actions.append(launch)
    return state, tuple(actions)


def _launch(state: State, container: ContainerId) -> tuple[State, Launch]:
    number = state.launches + 1
    before = state.containers.get(container, Container())
    containers = {**state.containers, container: replace(before, launch=number, running=True)}
    return replace(state, launches=number, containers=containers), Launch(container, number)


def _exited(state: State, event: ContainerExited, now_s: float) -> tuple[State, tuple[Action, ...]]:
    container = state.containers.get(event.container)
    if container is None or container.launch != event.launch or not container.running:
        return state, ()  # an incarnation that has been replaced, or a report that came twice
    meaning = _MEANING.get(event.exit_code, "failed")
    details = {"container": event.container, "exit-code": str(event.exit_code), "meaning": meaning}
    record = Record("container-exited", {**details, "reason": event.reason[:500]})
    state = _with(state, event.container, replace(container, running=False))
    if event.exit_code == 0 or state.phase == Phase.STOPPING:
        state = _with(state, event.container, replace(container, running=False, done=True))
        return _finish_when_all_done(state), (record,)
    return _failed(state, event, record, now_s)


def _failed(
    state: State, event: ContainerExited, record: Record, now_s: float
) -> tuple[State, tuple[Action, ...]]:
    """Restart within the retry window; configuration errors are not tried again, since nothing would differ."""
    container = state.containers[event.container]
    recent = (*(t for t in container.failures if now_s - t < state.retry.window_s), now_s)
    state = _with(state, event.container, replace(container, failures=recent))
    exhausted = state.retry.count >= 0 and len(recent) > state.retry.count
    if event.exit_code != EXIT_CONFIG and not exhausted:
        state, launch = _launch(state, event.container)
        return state, (record, launch)
    state = _with(state, event.container, replace(state.containers[event.container], given_up=True))
    if not state.retry.fail_job and event.exit_code != EXIT_CONFIG:
        return _finish_when_all_done(state), (
            record,
            Record("container-given-up", {"container": event.container}),
        )
    message = f"container {event.container} ended with code {event.exit_code}: {event.reason}".strip()
    state = replace(state, phase=Phase.FAILED, message=message)
    return state, (record, *(Kill(id_) for id_, other in state.containers.items() if other.running))


def _stop(state: State, event: StopRequested, now_s: float) -> tuple[State, tuple[Action, ...]]:
    if (
        state.phase == Phase.STOPPING
    ):  # asked again: the earlier deadline counts, so that a second signal can kill
        sooner_s = min(now_s + event.deadline_s, state.kill_at_s if state.kill_at_s is not None else now_s)
        return replace(state, kill_at_s=sooner_s), ()
    state = replace(
        state,
        phase=Phase.STOPPING,
        kill_at_s=now_s + event.deadline_s,
        message=event.reason or "stop requested",
    )
    asks = tuple(RequestStop(id_) for id_, container in state.containers.items() if container.running)
    record = Record("stop-requested", {"reason": event.reason, "deadline-s": f"{event.deadline_s:g}"})
    return _finish_when_all_done(state), (record, *asks)


def _tick(state: State, now_s: float) -> tuple[State, tuple[Action, ...]]:
    if state.kill_at_s is None or now_s < state.kill_at_s:
        return state, ()
    kills = tuple(Kill(id_) for id_, container in state.containers.items() if container.running)
    return replace(state, kill_at_s=None), kills


def _with(state: State, container: ContainerId, value: Container) -> State:
    return replace(state, containers={**state.containers, container: value})


def _finish_when_all_done(state: State) -> State:
    if any(container.running for container in state.containers.values()):
        return state
    if state.phase == Phase.STOPPING:
        return replace(state, phase=Phase.STOPPED)
    if all(container.done or container.given_up for container in state.containers.values()):
        given_up = any(container.given_up for container in state.containers.values())
        return replace(state, phase=Phase.FAILED if given_up else Phase.FINISHED)
    return state
