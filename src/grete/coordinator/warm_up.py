"""Containers that a waiting model adds are started before its tasks move, and get ready without any.

A container takes seconds to start, with Spark or on a cluster many, and its tasks stood still for as long. Meanwhile
those that have them go on. So too a change with which a container does not get ready stops nobody: it is tried again,
and given up, before anybody was asked to pause. (KIP-441 is the model: a task moves to who is ready for it.)
"""

from __future__ import annotations

from dataclasses import replace

from grete.coordinator.events import Action, Pause
from grete.coordinator.incarnations import Decision, fields, launch
from grete.coordinator.state import ContainerSpec, ContainerState, PendingModel, State
from grete.model.ids import ContainerId

_AT_MOST_S = 120.0
"""A cluster may have no room for it: then the model is granted all the same, and its tasks wait."""


def begin(state: State, pending: PendingModel, now_s: float) -> Decision:
    """Start the containers that come, those that are not ready yet; no action when nobody is to be waited for.

    The first model of a coordinator is served at once: until then it can neither be asked, nor show anything.
    """
    if not state.specs or _stands_still(state):
        return state, ()
    actions: list[Action] = []
    for id_, spec in sorted(pending.specs.items()):
        if id_ not in state.specs and not spec.standby:
            state, more = _get_ready(state, id_, pending)
            actions += more
    if not actions:
        return state, ()
    pending = replace(pending, warm_up_until_s=now_s + _AT_MOST_S)
    return replace(state, pending=pending), tuple(actions)


def _get_ready(state: State, id_: ContainerId, pending: PendingModel) -> Decision:
    container = state.containers.get(id_, ContainerState())
    if container.spec.tasks or container.held or container.paused or container.replacing:
        return state, ()
    if not container.running:
        return launch_again(state, id_, pending)
    return fields(state, id_, pausing=True), (Pause(id_, pending.revision),)


def launch_again(state: State, id_: ContainerId, pending: PendingModel) -> Decision:
    """A new incarnation of a container that gets ready for the waiting model."""
    wanted = pending.specs[id_]
    spec = ContainerSpec(process=wanted.process, standby=wanted.standby)
    state, action = launch(state, id_, spec, barrier=pending.revision)
    return fields(state, id_, untried=pending.cause != ""), (action,)


def goes_on(state: State, pending: PendingModel, now_s: float) -> bool:
    """Whether somebody gets ready who is worth waiting for: not once others' tasks stand still."""
    if pending.warm_up_until_s is None or now_s >= pending.warm_up_until_s or _stands_still(state):
        return False
    return any(_is_awaited(one) for id_, one in state.containers.items() if comes(state, id_))


def comes(state: State, id_: ContainerId) -> bool:
    """Whether the container is one that gets ready now, or is started again to do so."""
    pending = state.pending
    if pending is None or pending.warm_up_until_s is None:
        return False
    return id_ in pending.specs and id_ not in state.specs and not state.containers[id_].spec.tasks


def _is_awaited(container: ContainerState) -> bool:
    return container.restart_at_s is not None or (container.running and not container.paused)


def _stands_still(state: State) -> bool:
    """Whether some tasks are with nobody who works, and not because they are done or held."""
    return any(
        one.pausing or one.paused if one.running else not (one.done or one.held or one.given_up)
        for one in state.containers.values()
        if one.spec.tasks
    )
