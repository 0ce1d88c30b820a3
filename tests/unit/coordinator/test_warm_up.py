"""Containers that come get ready before anybody pauses for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    Action,
    ContainerExited,
    ContainerPaused,
    ContainerRequested,
    ContainerSilent,
    Event,
    FenceOff,
    Grant,
    Kill,
    Launch,
    ModelChanged,
    Pause,
    RaiseFence,
    RecordHistory,
    RequestStop,
    Retreat,
    RetreatRefused,
    Run,
    Tick,
)
from grete.coordinator.state import ContainerSpec, ContainerState, Phase, State
from grete.model.ending import ExitCode
from grete.model.ids import ContainerId

ZERO, ONE, TWO = (ContainerId(str(number)) for number in range(3))
ALONE = {ZERO: ContainerSpec("a b", "q", "p")}
APART = {ZERO: ContainerSpec("a", "q", "p"), ONE: ContainerSpec("b", "q", "p")}
DEADLINE_S = 30.0


def after(state: State, *events: Event, now_s: float = 1.0) -> tuple[State, list[Action]]:
    """The state after events, and what was to be done at the last one, but for rows of the history."""
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = decide(state, event, now_s)
    return state, [action for action in actions if not isinstance(action, RecordHistory)]


def growing(retry: RetryPolicy | None = None) -> tuple[State, list[Action]]:
    """A job of one container is to have two."""
    state, _ = decide(State(retry or RetryPolicy()), ModelChanged(1, ALONE), 0)
    return after(state, ModelChanged(2, APART, DEADLINE_S, "configuration change: job.container.count"))


def exit_of(state: State, container: ContainerId, code: int) -> ContainerExited:
    return ContainerExited(container, state.containers[container].launch, code, "why")


def test_who_has_the_tasks_is_asked_to_pause_when_who_is_to_have_them_is_ready() -> None:
    state, actions = growing()
    assert actions == [Launch(ONE, 2, barrier=2)]
    assert state.barriers.began_s is None, "nobody's tasks wait yet"
    state, actions = after(state, ContainerPaused(ONE, 2, 2), now_s=9)
    assert actions == [Pause(ZERO, 2)]
    assert state.barriers.began_s == 9
    _, actions = after(state, ContainerPaused(ZERO, 1, 2), now_s=10)
    assert actions == [RaiseFence(ZERO, 3), Grant(2), Run(ZERO), Run(ONE)]


def test_a_job_that_begins_has_nobody_to_wait_for() -> None:
    _, actions = after(State(RetryPolicy()), ModelChanged(1, APART))
    assert actions == [Grant(1), Launch(ZERO, 1), Launch(ONE, 2)]


def test_nobody_waits_where_no_task_moves() -> None:
    more = {**ALONE, ONE: ContainerSpec("c", "q", "p")}
    state, _ = decide(State(RetryPolicy()), ModelChanged(1, ALONE), 0)
    assert after(state, ModelChanged(2, more))[1] == [Grant(2), Launch(ONE, 2)]


def test_a_standby_container_is_started_when_tasks_have_moved() -> None:
    state, _ = decide(State(RetryPolicy()), ModelChanged(1, ALONE), 0)
    copies = {ZERO: ContainerSpec("a", "q", "p"), ONE: ContainerSpec("copy of a", "q", "p", standby=True)}
    assert after(state, ModelChanged(2, copies))[1] == [Pause(ZERO, 2)]


def test_one_that_is_not_ready_in_two_minutes_is_not_waited_for_and_runs_when_it_is() -> None:
    state, _ = growing()
    state, actions = after(state, Tick(), now_s=120)
    assert actions == []
    state, actions = after(state, Tick(), now_s=121)
    assert actions == [Pause(ZERO, 2)]
    state, actions = after(state, Tick(), now_s=121 + DEADLINE_S - 1)
    assert actions == [], "the deadline is as long as without a container that comes"
    _, actions = after(state, ContainerPaused(ZERO, 1, 2), now_s=151)
    assert actions == [RaiseFence(ZERO, 3), Grant(2), Run(ZERO), Run(ONE)]


def test_the_deadline_cuts_off_who_has_tasks_and_not_who_has_none() -> None:
    state, _ = growing()
    state, _ = after(state, Tick(), now_s=121)
    state, actions = after(state, Tick(), now_s=121 + DEADLINE_S)
    assert actions == [FenceOff(ZERO, 3), Kill(ZERO), Grant(2), Launch(ZERO, 4), Run(ONE)]


def test_one_that_fails_is_tried_again_while_the_others_work() -> None:
    state, _ = growing()
    state, actions = after(state, exit_of(state, ONE, 1))
    assert (actions, state.containers[ZERO].pausing) == ([], False)
    restart_at_s = state.containers[ONE].restart_at_s
    assert restart_at_s is not None
    state, actions = after(state, Tick(), now_s=restart_at_s)
    assert actions == [Launch(ONE, 3, barrier=2)]
    assert after(state, ContainerPaused(ONE, 3, 2))[1] == [Pause(ZERO, 2)]


def test_one_that_is_silent_is_fenced_off_and_tried_again() -> None:
    state, _ = growing()
    state, actions = after(state, ContainerSilent(ONE, 2, "no heartbeat for 10 s"))
    assert actions == [FenceOff(ONE, 3), Kill(ONE)]
    restart_at_s = state.containers[ONE].restart_at_s
    assert restart_at_s is not None
    assert after(state, Tick(), now_s=restart_at_s)[1] == [Launch(ONE, 4, barrier=2)]


def test_a_change_with_which_it_does_not_get_ready_is_taken_back_and_nobody_has_paused() -> None:
    state, _ = growing()
    state, actions = after(state, exit_of(state, ONE, ExitCode.CONFIG))
    assert actions == [Retreat(ONE, "container 1 ended with code 2: why")]
    state, actions = after(state, Tick(), now_s=2)
    assert actions == [], "the change is as good as gone"
    state, actions = after(state, ModelChanged(3, ALONE, DEADLINE_S, "taken back"), now_s=3)
    assert actions == [Grant(3)]
    assert list(state.containers) == [ZERO]


def test_without_a_way_back_the_job_fails_as_it_would_have() -> None:
    state, _ = growing()
    state, _ = after(state, exit_of(state, ONE, ExitCode.CONFIG))
    state, actions = after(state, RetreatRefused(ONE, "none before"))
    assert (state.phase, actions) == (Phase.FAILED, [Kill(ZERO)])


@pytest.mark.parametrize("code", [-9, 1])
def test_once_tasks_stand_still_nobody_waits_for_who_gets_ready(code: int) -> None:
    state, _ = growing()
    state, actions = after(state, exit_of(state, ZERO, code))
    assert actions == [FenceOff(ZERO, 3), Grant(2), Launch(ZERO, 4), Run(ONE)]


def test_where_tasks_stand_still_already_the_new_one_is_not_waited_for() -> None:
    both = {**APART, ONE: ContainerSpec("b", "q", "p")}
    state, _ = decide(State(RetryPolicy()), ModelChanged(1, both), 0)
    state, _ = after(state, exit_of(state, ONE, 1))
    three = {ZERO: ContainerSpec("", "q", "p"), ONE: APART[ONE], TWO: APART[ZERO]}
    assert after(state, ModelChanged(2, three))[1] == [Pause(ZERO, 2)]


def test_a_later_model_without_it_ends_it_and_one_with_it_waits_on() -> None:
    state, _ = growing()
    _, actions = after(state, ModelChanged(3, ALONE, DEADLINE_S, "one again"))
    assert actions == [RequestStop(ONE), Grant(3)]
    three = {ZERO: APART[ZERO], ONE: ContainerSpec("", "q", "p"), TWO: APART[ONE]}
    state, actions = after(state, ModelChanged(3, three, DEADLINE_S, "three"))
    assert actions == [Pause(ONE, 3), Launch(TWO, 3, barrier=3)]
    state, actions = after(state, ContainerPaused(TWO, 3, 3), ContainerPaused(ONE, 2, 2))
    assert actions == [], "it answers for the barrier before"
    assert after(state, ContainerPaused(ONE, 2, 3))[1] == [Pause(ZERO, 3)]


def test_one_that_is_ready_is_ready_for_the_next_model_too() -> None:
    state, _ = growing()
    three = {**APART, TWO: ContainerSpec("c", "q", "p")}
    state, _ = after(state, ContainerPaused(ONE, 2, 2))
    _, actions = after(state, ModelChanged(3, three))
    assert actions == [Pause(ZERO, 3)], "who has paused is not kept waiting for a third"


def test_an_operator_restarts_or_holds_it() -> None:
    state, _ = growing()
    restarted, actions = after(state, ContainerRequested(ONE, "restart"))
    assert actions == [RequestStop(ONE)]
    assert after(restarted, exit_of(restarted, ONE, 6))[1] == [Launch(ONE, 3, barrier=2)]
    held, _ = after(state, ContainerRequested(ONE, "stop"))
    assert after(held, exit_of(held, ONE, 6))[1] == [Pause(ZERO, 2)]


def test_a_successor_that_finds_it_gives_it_its_tasks_and_waits_for_nobody_else() -> None:
    """It holds no task, whatever the coordinator before meant it to have; a first model is served at once."""
    adopted = {
        ZERO: ContainerState(spec=ALONE[ZERO], launch=1, running=True, unsure=True),
        ONE: ContainerState(spec=ContainerSpec(process="p"), launch=2, running=True, unsure=True),
    }
    state = State(RetryPolicy(), containers=adopted, launches=2)
    three = {**APART, TWO: ContainerSpec("c", "q", "p")}
    state, actions = after(state, ModelChanged(1, three))
    assert actions == [Pause(ZERO, 1)]
    _, actions = after(state, ContainerPaused(ZERO, 1, 1))
    assert actions == [RaiseFence(ZERO, 3), Grant(1), Run(ZERO), Run(ONE), Launch(TWO, 4)]


def test_a_successor_that_has_no_place_for_it_ends_it() -> None:
    adopted = {
        ZERO: ContainerState(spec=ALONE[ZERO], launch=1, running=True),
        ONE: ContainerState(spec=ContainerSpec(process="p"), launch=2, running=True),
    }
    state = State(RetryPolicy(), containers=adopted, launches=2)
    state, actions = after(state, ModelChanged(1, ALONE))
    assert actions == [RequestStop(ONE), Grant(1)]
    assert list(after(state, exit_of(state, ONE, 6))[0].containers) == [ZERO]


def test_one_that_was_started_for_another_process_is_started_again_for_this_one() -> None:
    state, _ = growing()
    state, _ = after(state, ContainerPaused(ONE, 2, 2))
    bigger = {id_: replace(spec, process="more memory") for id_, spec in APART.items()}
    state, actions = after(state, ModelChanged(3, bigger, DEADLINE_S, "memory"))
    assert actions == [Pause(ZERO, 3)]
    state, actions = after(state, ContainerPaused(ZERO, 1, 3))
    assert actions == [RaiseFence(ZERO, 3), Grant(3), RequestStop(ZERO), RequestStop(ONE)]
    assert after(state, exit_of(state, ONE, 6))[1] == [Launch(ONE, 4)]
