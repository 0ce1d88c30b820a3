"""How a running job changes to another model: a barrier over the containers that it touches, and over no others.

1. Containers that come are started without tasks, and get ready: no task waits for a process that starts
   (`coordinator.warm_up`).
2. Containers whose tasks differ are asked to pause: their query ends at a batch boundary, its commit being durable.
3. Each says that it has paused, or ends; one that does neither until the deadline is fenced off and killed.
4. When none of them holds a task any more, their fences are raised, and the new model is granted: served, and
   the containers are commanded to run it. A container's report is believed of its own progress only: one that has
   reported a pause and did not pause, or for which another process did, commits nothing for tasks that others have
   now.

Everything else (a query that is built differently, a process that is started differently) needs no barrier, since
no task changes hands.
"""

from __future__ import annotations

from dataclasses import replace

from grete.coordinator import warm_up
from grete.coordinator.events import (
    Action,
    ContainerLoaded,
    ContainerPaused,
    FenceOff,
    Grant,
    ModelChanged,
    Pause,
    RaiseFence,
    RecordHistory,
    ReloadRequested,
    RequestStop,
    Run,
)
from grete.coordinator.incarnations import AT_REST, Decision, cut_off, fields, launch, leave
from grete.coordinator.state import ContainerSpec, ContainerState, Failures, PendingModel, Phase, Specs, State
from grete.model.ids import ContainerId


def model_changed(state: State, event: ModelChanged, now_s: float) -> Decision:
    """Begin to change to a model. A change that waits already is replaced by it."""
    if state.phase is not Phase.RUNNING:
        return state, ()
    pending = PendingModel(event.revision, event.specs, event.deadline_s, event.cause)
    barriers = replace(state.barriers, started=state.barriers.started + 1)
    state, left = _leave_all(state, {**state.specs, **pending.specs})
    state = replace(state, pending=pending, barriers=barriers)
    if _waited_for(state, pending):
        state, actions = warm_up.begin(state, pending, now_s)
        if actions:
            return state, (*left, *actions)
    state, actions = _begin_barrier(state, pending, now_s)
    return state, (*left, *actions)


def _leave_all(state: State, wanted: Specs) -> Decision:
    """Forget containers that do not run and are in no model any more."""
    actions: list[Action] = []
    for id_, container in state.containers.items():
        if id_ not in wanted and not container.running:
            state, more = leave(state, id_)
            actions += more
    return state, tuple(actions)


def _begin_barrier(state: State, pending: PendingModel, now_s: float) -> Decision:
    """Ask for what the waiting model needs: pauses, and the ends of those that have no place in it."""
    actions: list[Action] = []
    pending = replace(pending, warm_up_until_s=None, deadline_s=now_s + pending.pause_s)
    state = replace(state, pending=pending)
    if state.barriers.began_s is None:
        state = replace(state, barriers=replace(state.barriers, began_s=now_s))
    gone = [id_ for id_, one in state.containers.items() if one.running and id_ not in pending.specs]
    for id_ in sorted({*_waited_for(state, pending), *gone}):
        state, action = _ask_to_let_go(state, id_, pending)
        actions += action
    state, more = grant_when_free(state, now_s)
    return state, (*actions, *more)


def _ask_to_let_go(state: State, id_: ContainerId, pending: PendingModel) -> Decision:
    """To pause, or to end when it is not in the model; one that was asked to end does so anyway."""
    container = state.containers[id_]
    if container.replacing or container.held:
        return state, ()
    if id_ in pending.specs:
        return fields(state, id_, pausing=True), (Pause(id_, pending.revision),)
    return fields(state, id_, replacing=True, asked=_why(pending)), (RequestStop(id_),)


def _why(pending: PendingModel) -> str:
    return pending.cause or "the new coordinator has another configuration or version of grete"


def _waited_for(state: State, pending: PendingModel) -> list[ContainerId]:
    """The containers that still hold tasks which are not theirs in the waiting model."""
    return sorted(
        id_
        for id_, one in state.containers.items()
        if one.running and one.spec.tasks and not one.paused and not _keeps_tasks(id_, one, pending.specs)
    )


def _keeps_tasks(id_: ContainerId, container: ContainerState, specs: Specs) -> bool:
    return id_ in specs and specs[id_].tasks == container.spec.tasks


def is_moving(state: State, id_: ContainerId) -> bool:
    """Whether the container's tasks are about to change, so that nothing may be launched with the old ones."""
    pending = state.pending
    if pending is None:
        return False
    if (id_ in state.specs) != (id_ in pending.specs):
        return True  # it comes or goes, perhaps without a task: nothing to launch it with, or for
    return pending.specs.get(id_, ContainerSpec()).tasks != state.specs.get(id_, ContainerSpec()).tasks


def paused(state: State, event: ContainerPaused, now_s: float) -> Decision:
    """A container waits at the barrier. Reports for another barrier, or of another incarnation, count for nothing."""
    pending, container = state.pending, state.containers.get(event.container)
    if pending is None or container is None or container.launch != event.launch or not container.running:
        return state, ()
    if event.revision != pending.revision:
        return state, ()
    return grant_when_free(fields(state, event.container, paused=True), now_s)


def loaded(state: State, event: ContainerLoaded) -> Decision:
    """From here on, its end is the end of what it was commanded to run."""
    container = state.containers.get(event.container)
    if container is None or container.launch != event.launch or not container.unsure:
        return state, ()
    return fields(state, event.container, unsure=False), ()


def grant_when_free(state: State, now_s: float) -> Decision:
    """Grant the waiting model when every container that had to let go has done so.

    They are asked to when those that come are ready.
    """
    pending = state.pending
    if pending is None or warm_up.goes_on(state, pending, now_s):
        return state, ()
    if pending.warm_up_until_s is not None:
        return _begin_barrier(state, pending, now_s)
    if _waited_for(state, pending):
        return state, ()
    return _grant(state, pending, now_s)


def _grant(state: State, pending: PendingModel, now_s: float) -> Decision:
    state, fences = _raise_fences(state, pending)
    barriers = replace(state.barriers, ended=state.barriers.ended + 1)
    state = replace(state, pending=None, specs=pending.specs, revision=pending.revision, barriers=barriers)
    state, left = _leave_all(state, pending.specs)
    actions: list[Action] = [*fences, Grant(pending.revision), *left]
    for id_ in sorted(pending.specs):
        state, more = _bring_up(state, id_, pending, now_s)
        actions += more
    return state, tuple(actions)


def _raise_fences(state: State, pending: PendingModel) -> Decision:
    """Of the containers whose tasks differ in the waiting model and that may write, before that model is served.

    Who broke off may: a driver was killed, and its executors have not noticed yet.
    """
    actions: list[Action] = []
    for id_ in sorted(state.containers):
        container = state.containers[id_]
        if not container.spec.tasks or _keeps_tasks(id_, container, pending.specs):
            continue
        number = state.launches + 1
        if container.running:
            state = fields(replace(state, launches=number), id_, fence=number)
            actions.append(RaiseFence(id_, number))
        elif container.broke_off:
            state = fields(replace(state, launches=number), id_, broke_off=False)
            actions.append(FenceOff(id_, number))
    return state, tuple(actions)


def _bring_up(state: State, id_: ContainerId, pending: PendingModel, now_s: float) -> Decision:
    """Make one container run its spec, doing as little as possible."""
    spec, container = pending.specs[id_], state.containers.get(id_)
    is_untried = pending.cause != "" and (container is None or container.spec != spec)
    is_untried |= container is not None and container.untried
    if container is None or not container.running:
        if container is not None and (container.held or (container.done and container.spec == spec)):
            return state, ()
        if container is not None and container.restart_at_s is not None and container.spec == spec:
            return state, ()  # it failed with just this, and waits for its time
        if container is not None and container.spec != spec:
            state = fields(state, id_, failures=Failures())
        state, action = launch(state, id_)
        return fields(state, id_, untried=is_untried), (action,)
    if container.replacing or container.held:
        return state, ()  # it ends, and starts with what is in force then
    if container.spec.process != spec.process:
        deadline_s = pending.deadline_s - now_s
        kill_at_s = now_s + max(deadline_s, 0.0)
        asked = _why(pending)
        state = fields(state, id_, replacing=True, kill_at_s=kill_at_s, asked=asked, untried=is_untried)
        return state, (RequestStop(id_),)
    if container.pausing or container.spec != spec:
        run = {"spec": spec, "pausing": False, "paused": False, "unsure": True, "untried": is_untried}
        return fields(state, id_, **run), (Run(id_),)
    return state, ()


def reload(state: State, event: ReloadRequested) -> Decision:
    """Containers at the barrier rebuild their queries anyway."""
    if state.phase is not Phase.RUNNING:
        return state, ()
    at_work = [id_ for id_ in event.containers if _is_at_work(state, id_)]
    for id_ in at_work:
        state = fields(state, id_, unsure=True)
    return state, tuple(Run(id_) for id_ in at_work)


def _is_at_work(state: State, id_: ContainerId) -> bool:
    container = state.containers.get(id_)
    if container is None or not container.running or id_ not in state.specs:
        return False
    return not (container.pausing or container.replacing or container.held)


def tick(state: State, now_s: float) -> Decision:
    """At the deadline, containers that still hold tasks are fenced off and killed: others have waited for long."""
    pending = state.pending
    if pending is not None and pending.warm_up_until_s is not None:
        return grant_when_free(state, now_s)
    if pending is None or now_s < pending.deadline_s:
        return state, ()
    actions: list[Action] = []
    if late := _waited_for(state, pending):
        state = replace(state, barriers=replace(state.barriers, timed_out=state.barriers.timed_out + 1))
    for id_ in late:
        state, more = cut_off(state, id_)
        actions += [
            *more,
            RecordHistory("container-cut-off", {"container": id_, "reason": "it did not pause in time"}),
        ]
        state = fields(state, id_, **AT_REST)
    state, more = grant_when_free(state, now_s)
    return state, (*actions, *more)


def measured(state: State, now_s: float) -> State:
    """The state with how long the last change took, once it is over (`Barriers`)."""
    barriers = state.barriers
    if barriers.began_s is None or state.pending is not None:
        return state
    if any(one.running and (one.unsure or one.replacing) for one in state.containers.values()):
        return state
    return replace(state, barriers=replace(barriers, began_s=None, last_s=now_s - barriers.began_s))
