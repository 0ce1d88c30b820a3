"""The incarnations of containers as decisions change them: launched, cut off, gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grete.coordinator.events import Action, FenceOff, Kill, Launch
from grete.coordinator.state import ContainerSpec, ContainerState, State
from grete.model.ids import ContainerId

Decision = tuple[State, tuple[Action, ...]]
AT_REST: dict[str, Any] = {
    "running": False,
    "fence": 0,
    "pausing": False,
    "paused": False,
    "unsure": False,
    "replacing": False,
    "kill_at_s": None,
    "asked": "",
    "committed": False,
}
"""The fields of a container that has no incarnation."""


def leave(state: State, id_: ContainerId) -> Decision:
    """A container that does not run is not in the model any more.

    When it broke off, the fence says that its last batch will never commit: no later incarnation informs its readers.
    """
    broke_off = state.containers[id_].broke_off
    state = without(state, id_)
    if not broke_off:
        return state, ()
    number = state.launches + 1
    return replace(state, launches=number), (FenceOff(id_, number),)


def cut_off(state: State, id_: ContainerId) -> Decision:
    """Fence first: a process that can not be killed from here can not commit either."""
    number = state.launches + 1
    return replace(state, launches=number), (FenceOff(id_, number), Kill(id_))


def launch(
    state: State, id_: ContainerId, spec: ContainerSpec | None = None, barrier: int = 0
) -> tuple[State, Launch]:
    """A new incarnation with what is in force, or with another spec; with a `barrier` it begins at that one."""
    number = state.launches + 1
    before = state.containers.get(id_, ContainerState())
    now = replace(
        before,
        spec=state.specs[id_] if spec is None else spec,
        launch=number,
        **{**AT_REST, "running": True, "pausing": barrier > 0},
        broke_off=False,
        done=False,
        given_up=False,
        restart_at_s=None,
        host="",
    )
    action = Launch(id_, number, before.host, barrier)
    return replace(state, launches=number, containers={**state.containers, id_: now}), action


def fields(state: State, id_: ContainerId, **changed: Any) -> State:
    """The state with some fields of one container changed."""
    return replace(state, containers={**state.containers, id_: replace(state.containers[id_], **changed)})


def without(state: State, id_: ContainerId) -> State:
    """The state without a container."""
    return replace(state, containers={other: one for other, one in state.containers.items() if other != id_})
