"""The coordinator's decisions: a pure function from state and event to new state and actions.

No I/O, clock, thread or log here, so that every order of events can be tried by a seeded simulator. The loop
(`coordinator.loop`) executes the actions in order, each only while the leadership it was decided under is valid.
"""

from __future__ import annotations

from dataclasses import replace

from grete.coordinator import reconfigure, retry, warm_up
from grete.coordinator.events import (
    Action,
    ContainerAtWork,
    ContainerCommitted,
    ContainerEvent,
    ContainerExited,
    ContainerLoaded,
    ContainerPaused,
    ContainerRequested,
    ContainerSilent,
    Event,
    Kill,
    ModelChanged,
    PolicyChanged,
    RecordHistory,
    ReloadRequested,
    RequestStop,
    Retreat,
    RetreatRefused,
    StepDown,
    StepDownRequested,
    StopRequested,
    Tick,
)
from grete.coordinator.incarnations import AT_REST, Decision, cut_off, fields, launch, leave
from grete.coordinator.state import FINAL, ContainerState, Failures, Phase, State
from grete.model.ending import ExitCode
from grete.model.ids import ContainerId
from grete.text_logs import shortened

_DISMISSAL_S = 30.0
"""Seconds a standby container has to end when the job has."""
_TERMINATED = -15
"""It was asked to end by SIGTERM before it could listen."""
_OF_RECORDS = (ExitCode.POISON, ExitCode.OFFSETS_GONE)
"""What it read has ended it, and so it had been at work."""
_MEANING: dict[int, str] = {
    ExitCode.OK: "ended",
    ExitCode.CONFIG: "configuration error",
    ExitCode.POISON: "poison message",
    ExitCode.FENCED: "fenced",
    ExitCode.STOPPED: "stopped",
    ExitCode.OFFSETS_GONE: "offsets are gone",
    ExitCode.UNUSABLE: "cannot work",
}


def decide(state: State, event: Event, now_s: float) -> Decision:
    """The next state and what to do. In a final phase nothing happens any more."""
    if state.phase in FINAL:
        return state, ()
    state, actions = _decide(state, event, now_s)
    return reconfigure.measured(state, now_s), actions


def _decide(state: State, event: Event, now_s: float) -> Decision:
    match event:
        case ModelChanged():
            return reconfigure.model_changed(state, event, now_s)
        case ReloadRequested():
            return reconfigure.reload(state, event)
        case PolicyChanged():
            return replace(state, retry=event.retry), ()
        case StopRequested():
            return _stop(state, event, now_s)
        case StepDownRequested():
            return _step_down(state, event)
        case RetreatRefused():
            return _retreat_refused(state, event)
        case Tick():
            return _tick(state, now_s)
        case _:
            return _of_container(state, event, now_s)


def _of_container(state: State, event: ContainerEvent, now_s: float) -> Decision:
    match event:
        case ContainerPaused():
            return reconfigure.paused(state, event, now_s)
        case ContainerLoaded() | ContainerAtWork() | ContainerCommitted():
            return _reported(state, event)
        case ContainerExited():
            return _exited(state, event, now_s)
        case ContainerSilent():
            return _silent(state, event, now_s)
        case ContainerRequested():
            return _requested(state, event, now_s)


def _exited(state: State, event: ContainerExited, now_s: float) -> Decision:
    container = state.containers.get(event.container)
    if container is None or container.launch != event.launch or not container.running:
        return state, ()  # an incarnation that has been replaced, or a report that came twice
    record = RecordHistory("container-exited", _exit_details(state, container, event))
    broke_off = not event.is_clean and container.spec.tasks != ""
    state = fields(state, event.container, **AT_REST, broke_off=broke_off)
    state, actions = _after_exit(state, container, event, now_s)
    return state, (record, *actions)


def _exit_details(state: State, container: ContainerState, event: ContainerExited) -> dict[str, str]:
    """An exit in the words of the history: why it was asked to end, if it was, and else what it ended with."""
    details = {"container": event.container, "exit-code": str(event.exit_code)}
    asked = container.asked or (state.message if state.phase is Phase.STOPPING else "")
    meaning = _MEANING.get(event.exit_code, "killed" if event.exit_code < 0 else "failed")
    if asked and event.exit_code in (ExitCode.OK, ExitCode.STOPPED, _TERMINATED):
        return {**details, "meaning": "stopped" if event.exit_code else meaning, "cause": asked, "reason": ""}
    return {**details, "meaning": meaning, "cause": asked, "reason": shortened(event.reason, 2000)}


def _reported(state: State, event: ContainerLoaded | ContainerAtWork | ContainerCommitted) -> Decision:
    if isinstance(event, ContainerLoaded):
        return reconfigure.loaded(state, event)
    container = state.containers.get(event.container)
    if container is None or container.launch != event.launch or not container.running:
        return state, ()
    if isinstance(event, ContainerAtWork):
        is_untried = container.untried and container.replacing  # it is the one before that works
        return fields(state, event.container, untried=is_untried), ()
    return fields(state, event.container, committed=True), ()


def _after_exit(state: State, before: ContainerState, event: ContainerExited, now_s: float) -> Decision:
    id_ = event.container
    if state.phase is Phase.STOPPING:
        return _finish_when_all_done(fields(state, id_, done=True)), ()
    if id_ not in state.specs and (state.pending is None or id_ not in state.pending.specs):
        state, left = leave(state, id_)
        state, actions = _settle(state, now_s)
        return state, (*left, *actions)
    if before.held:
        return _settle(state, now_s)
    if before.replacing or event.left or (event.exit_code == 0 and before.unsure and not before.done):
        return _launch_or_wait(state, id_, now_s)
    if event.exit_code == 0 or before.done:
        return _settle(fields(state, id_, done=True), now_s)
    return _failed(state, before, event, now_s)


def _launch_or_wait(state: State, id_: ContainerId, now_s: float) -> Decision:
    """Launch it again, unless its tasks are about to move: then the grant launches it, if it is not to get ready."""
    if state.pending is not None and warm_up.comes(state, id_):
        return warm_up.launch_again(state, id_, state.pending)
    if reconfigure.is_moving(state, id_):
        return reconfigure.grant_when_free(state, now_s)
    state, action = launch(state, id_)
    return state, (action,)


def _failed(state: State, before: ContainerState, event: ContainerExited, now_s: float) -> Decision:
    """Start it again, at once or after a pause, unless it is given up.

    One that has never been at work with a configuration that was changed while the job ran is none to give up: the
    configuration is.
    """
    id_ = event.container
    verdict = retry.judge(before, event, state.retry, now_s)
    state = fields(state, id_, failures=verdict.failures)
    if not verdict.is_given_up:
        pause_s = verdict.failures.pause_s
        if pause_s <= 0:
            return _launch_or_wait(state, id_, now_s)
        return _settle(fields(state, id_, restart_at_s=now_s + pause_s), now_s)
    message = f"container {id_} ended with code {event.exit_code}: {event.reason}".strip()
    if before.untried and event.exit_code not in _OF_RECORDS and not _is_standby(state, id_):
        state = fields(state, id_, failures=Failures())
        if state.pending is not None:
            if not warm_up.comes(state, id_):
                return _settle(state, now_s)
            # it is what waits that does not fit: let nobody pause for it until it is taken back
            state = fields(state, id_, restart_at_s=state.pending.warm_up_until_s)
        return state, (Retreat(id_, message),)
    state = fields(state, id_, given_up=True)
    if _is_standby(state, id_) or (not state.retry.fail_job and event.exit_code != ExitCode.CONFIG):
        state, actions = _settle(state, now_s)
        return state, (RecordHistory("container-given-up", {"container": id_}), *actions)
    return _fail(state, message)


def _retreat_refused(state: State, event: RetreatRefused) -> Decision:
    if event.container not in state.containers or state.phase is not Phase.RUNNING:
        return state, ()
    return _fail(fields(state, event.container, given_up=True), event.reason)


def _fail(state: State, message: str) -> Decision:
    kills = tuple(Kill(other) for other, container in state.containers.items() if container.running)
    return replace(state, phase=Phase.FAILED, message=message), kills


def _restarts(state: State, now_s: float) -> Decision:
    """Start those again whose pause is over."""
    actions: list[Action] = []
    if state.phase is not Phase.RUNNING:
        return state, ()
    for id_, container in state.containers.items():
        if container.restart_at_s is not None and now_s >= container.restart_at_s:
            state, more = _launch_or_wait(fields(state, id_, restart_at_s=None), id_, now_s)
            actions += more
    return state, tuple(actions)


def _settle(state: State, now_s: float) -> Decision:
    """After a container came to rest: a model that waited for it may be granted, or the job may be at its end."""
    state, actions = reconfigure.grant_when_free(state, now_s)
    state, more = _dismiss_standby(state, now_s)
    return _finish_when_all_done(state), (*actions, *more)


def _is_standby(state: State, id_: ContainerId) -> bool:
    return id_ in state.specs and state.specs[id_].standby


def _dismiss_standby(state: State, now_s: float) -> Decision:
    """When every container that processes is at its end, those that only keep copies are asked to end, too."""
    if state.pending is not None or not all(
        container.done or container.given_up
        for id_, container in state.containers.items()
        if not _is_standby(state, id_)
    ):
        return state, ()
    actions: list[Action] = []
    for id_, container in state.containers.items():
        if container.running and not container.done:
            asked = "the job has ended"
            state = fields(state, id_, done=True, kill_at_s=now_s + _DISMISSAL_S, asked=asked)
            actions.append(RequestStop(id_))
        elif container.restart_at_s is not None:
            state = fields(state, id_, done=True, restart_at_s=None)
    return state, tuple(actions)


def _silent(state: State, event: ContainerSilent, now_s: float) -> Decision:
    """Fence it off first, so that it does not matter whether it still runs."""
    container = state.containers.get(event.container)
    if container is None or container.launch != event.launch or not container.running:
        return state, ()
    state, actions = cut_off(state, event.container)
    exit_ = ContainerExited(event.container, event.launch, -9, event.reason, left=event.left)
    state, more = _exited(state, exit_, now_s)
    return state, (*actions, *more)


def _requested(state: State, event: ContainerRequested, now_s: float) -> Decision:
    container = state.containers.get(event.container)
    wanted = state.specs if state.pending is None else {**state.specs, **state.pending.specs}
    if container is None or state.phase is not Phase.RUNNING or event.container not in wanted:
        return state, ()
    details = {"container": event.container, "what": event.what, "reason": event.reason}
    if event.host:
        details["host"] = event.host
        state = fields(state, event.container, host=event.host)
    record = RecordHistory("container-requested", details)
    if event.what != "stop" and not container.running:
        state = fields(state, event.container, held=False, done=False, given_up=False, failures=Failures())
        if reconfigure.is_moving(state, event.container):
            return state, (record,)
        state, action = launch(state, event.container)
        return state, (record, action)
    if event.what == "start":
        return fields(state, event.container, held=False, replacing=container.held or container.replacing), (
            record,
        )
    held = event.what == "stop"
    if not container.running:
        return fields(state, event.container, held=held, restart_at_s=None), (record,)
    state = fields(
        state,
        event.container,
        held=held,
        replacing=not held,
        kill_at_s=now_s + event.deadline_s,
        asked=f"{event.what} of the container: {event.reason}",
    )
    return state, (record, RequestStop(event.container))


def _step_down(state: State, event: StepDownRequested) -> Decision:
    """Not while the job stops: it ends anyhow, and the next coordinator would not know that it was to."""
    down = StepDown(event.reason, event.ends_process)
    return state, (down,) if state.phase is Phase.RUNNING else ()


def _stop(state: State, event: StopRequested, now_s: float) -> Decision:
    if state.phase is Phase.STOPPING:
        # asked again: the earlier deadline counts, so that a second signal can kill
        sooner_s = min(now_s + event.deadline_s, state.kill_at_s if state.kill_at_s is not None else now_s)
        return replace(state, kill_at_s=sooner_s), ()
    state = replace(
        state,
        phase=Phase.STOPPING,
        pending=None,
        kill_at_s=now_s + event.deadline_s,
        message=event.reason or "stop requested",
    )
    asks = tuple(RequestStop(id_) for id_, container in state.containers.items() if container.running)
    record = RecordHistory("stop-requested", {"reason": event.reason, "deadline-s": f"{event.deadline_s:g}"})
    return _finish_when_all_done(state), (record, *asks)


def _tick(state: State, now_s: float) -> Decision:
    actions: list[Action] = []
    if state.kill_at_s is not None and now_s >= state.kill_at_s:
        actions += [Kill(id_) for id_, container in state.containers.items() if container.running]
        state = replace(state, kill_at_s=None)
    for id_, container in state.containers.items():
        if container.running and container.kill_at_s is not None and now_s >= container.kill_at_s:
            actions.append(Kill(id_))
            state = fields(state, id_, kill_at_s=None)
    state, more = reconfigure.tick(state, now_s)
    state, restarted = _restarts(state, now_s)
    return state, (*actions, *more, *restarted)


def _finish_when_all_done(state: State) -> State:
    if state.pending is not None or any(container.running for container in state.containers.values()):
        return state
    if state.phase is Phase.STOPPING:
        return replace(state, phase=Phase.STOPPED)
    if all(container.done or container.given_up for container in state.containers.values()):
        given_up = any(one.given_up for id_, one in state.containers.items() if not _is_standby(state, id_))
        return replace(state, phase=Phase.FAILED if given_up else Phase.FINISHED)
    return state
