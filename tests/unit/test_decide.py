from __future__ import annotations

from dataclasses import replace

import pytest

from grete.coordinator.decide import decide
from grete.coordinator.events import (
    ContainerExited,
    ContainerLoaded,
    ContainerPaused,
    FenceOff,
    Grant,
    Kill,
    Launch,
    ModelChanged,
    Record,
    RequestStop,
    Run,
    StopRequested,
    Tick,
)
from grete.coordinator.state import ContainerSpec, Phase, RetryPolicy, State
from grete.model.ids import ContainerId

ZERO, ONE = ContainerId("0"), ContainerId("1")


def started(retry: RetryPolicy | None = None, *containers: ContainerId) -> State:
    wanted = containers or (ZERO,)
    specs = {id_: ContainerSpec(f"tasks of {id_}", "q", "p") for id_ in wanted}
    state, actions = decide(State(retry or RetryPolicy()), ModelChanged(1, specs), 0)
    assert actions[0] == Grant(1)
    assert [action.container for action in actions if isinstance(action, Launch)] == list(wanted)
    return state


def exited(
    state: State, code: int, now_s: float = 1, container: ContainerId = ZERO
) -> tuple[State, list[object]]:
    launch = state.containers[container].launch
    after, actions = decide(state, ContainerExited(container, launch, code, "why"), now_s)
    return after, [action for action in actions if not isinstance(action, Record)]


def test_a_job_is_finished_when_every_container_has_drained() -> None:
    state = started(None, ZERO, ONE)
    state, actions = exited(state, 0)
    assert (state.phase, actions) == (Phase.RUNNING, [])
    state, _ = exited(state, 0, container=ONE)
    assert state.phase is Phase.FINISHED


def test_a_failed_container_is_launched_again_under_a_new_number() -> None:
    state, actions = exited(started(), 1)
    assert actions == [Launch(ZERO, 2)]
    assert state.containers[ZERO].running


def test_the_job_fails_after_too_many_failures_within_the_window() -> None:
    state = started(RetryPolicy(count=2, window_s=100))
    for now_s in (1, 2):
        state, _ = exited(state, 1, now_s)
    state, _ = exited(state, 1, 3)
    assert state.phase is Phase.FAILED
    assert "why" in state.message


@pytest.mark.parametrize(("code", "breaks_off"), [(0, False), (6, False), (-9, True), (1, True)])
def test_a_container_that_broke_off_and_leaves_the_model_is_fenced_off(code: int, breaks_off: bool) -> None:
    """No later incarnation tells those who read its outputs that the last batch will never commit."""
    one_less = ModelChanged(2, {ZERO: ContainerSpec("all tasks", "q", "p")})
    asked, _ = decide(started(None, ZERO, ONE), one_less, 1)
    moved, _ = decide(asked, ContainerPaused(ZERO, 1, 2), 1)
    after, actions = exited(moved, code, container=ONE)
    assert [action for action in actions if isinstance(action, FenceOff)] == [FenceOff(ONE, 3)] * breaks_off
    assert (list(after.containers), after.launches) == ([ZERO], 3 if breaks_off else 2)


def test_a_container_that_left_the_model_and_ends_later_is_fenced_off_too() -> None:
    state = started(None, ZERO, ONE)
    state = replace(state, specs={ZERO: state.specs[ZERO]})
    _, actions = exited(state, 1, container=ONE)
    assert actions == [FenceOff(ONE, 3)]


def test_failures_outside_the_window_do_not_count() -> None:
    state = started(RetryPolicy(count=1, window_s=10))
    for now_s in (0, 20, 40, 60):
        state, actions = exited(state, 1, now_s)
        assert len(actions) == 1
    assert state.phase is Phase.RUNNING


def test_a_retry_count_of_zero_fails_at_once_and_a_negative_one_never() -> None:
    assert exited(started(RetryPolicy(count=0)), 1)[0].phase is Phase.FAILED
    state = started(RetryPolicy(count=-1))
    for _ in range(50):
        state, _ = exited(state, 1)
    assert state.phase is Phase.RUNNING


@pytest.mark.parametrize("exit_code", [2, 7])
def test_a_configuration_error_and_lost_offsets_are_not_tried_again(exit_code: int) -> None:
    assert exited(started(), exit_code)[0].phase is Phase.FAILED


def test_failing_kills_the_other_containers() -> None:
    _, actions = exited(started(RetryPolicy(count=0), ZERO, ONE), 1)
    assert actions == [Kill(ONE)]


def test_without_fail_job_the_others_go_on() -> None:
    state, _ = exited(started(RetryPolicy(count=0, fail_job=False), ZERO, ONE), 1)
    assert state.phase is Phase.RUNNING
    state, _ = exited(state, 0, container=ONE)
    assert state.phase is Phase.FAILED


def test_an_exit_reported_twice_or_of_a_replaced_incarnation_changes_nothing() -> None:
    state, _ = exited(started(), 1)
    again, actions = decide(state, ContainerExited(ZERO, 1, 1), 2)
    assert (again, actions) == (state, ())


def test_stop_asks_first_and_kills_at_the_deadline() -> None:
    state, actions = decide(started(), StopRequested(30, "please"), 100)
    assert [a for a in actions if not isinstance(a, Record)] == [RequestStop(ZERO)]
    assert decide(state, Tick(), 129)[1] == ()
    state, actions = decide(state, Tick(), 130)
    assert actions == (Kill(ZERO),)
    state, _ = exited(state, -9)
    assert state.phase is Phase.STOPPED


def test_asking_twice_shortens_the_deadline_and_never_lengthens_it() -> None:
    state, _ = decide(started(), StopRequested(30), 100)
    state, _ = decide(state, StopRequested(60), 101)
    assert state.kill_at_s == 130
    state, _ = decide(state, StopRequested(0), 102)
    assert decide(state, Tick(), 102)[1] == (Kill(ZERO),)


def test_nothing_leads_out_of_a_final_phase() -> None:
    final, _ = exited(started(), 0)
    for event in (
        ModelChanged(2, {ZERO: ContainerSpec()}),
        ContainerExited(ZERO, 1, 1),
        StopRequested(1),
        Tick(),
    ):
        assert decide(final, event, 5) == (final, ())


STANDBY = ContainerId("0-0")


def with_standby(retry: RetryPolicy | None = None) -> State:
    specs = {ZERO: ContainerSpec("tasks", "q", "p"), STANDBY: ContainerSpec("copies", "q", "p", standby=True)}
    state, _ = decide(State(retry or RetryPolicy()), ModelChanged(1, specs), 0)
    assert state.containers[STANDBY].running
    return state


def test_a_job_that_is_done_dismisses_its_standby_containers_and_is_finished_without_waiting_for_work() -> (
    None
):
    state, actions = exited(with_standby(), 0)
    assert (state.phase, actions) == (Phase.RUNNING, [RequestStop(STANDBY)])
    state, actions = exited(state, 1, container=STANDBY)
    assert (state.phase, actions) == (Phase.FINISHED, [])


def test_a_dismissed_standby_container_that_does_not_end_is_killed() -> None:
    state, _ = exited(with_standby(), 0, now_s=1)
    assert Kill(STANDBY) in decide(state, Tick(), 60)[1]


def test_a_standby_container_that_has_caught_up_leaves_the_job_running() -> None:
    state, actions = exited(with_standby(), 0, container=STANDBY)
    assert (state.phase, actions) == (Phase.RUNNING, [])
    assert exited(state, 0)[0].phase is Phase.FINISHED


def test_a_job_does_not_fail_with_its_standby_container() -> None:
    state, _ = exited(with_standby(RetryPolicy(count=0)), 2, container=STANDBY)
    assert (state.phase, state.containers[STANDBY].given_up) == (Phase.RUNNING, True)
    assert exited(state, 0)[0].phase is Phase.FINISHED


def test_an_end_that_may_be_of_what_it_ran_before_is_no_end() -> None:
    """A container that drained just when it was told to go on: nobody has heard that it runs the new query."""
    state = started()
    changed = {ZERO: ContainerSpec(f"tasks of {ZERO}", "another query", "p")}
    state, actions = decide(state, ModelChanged(2, changed), 1)
    assert Run(ZERO) in actions
    unsure, actions = exited(state, 0)
    assert actions == [Launch(ZERO, 2)]
    assert unsure.phase is Phase.RUNNING
    sure, _ = decide(state, ContainerLoaded(ZERO, 1, 2), 1)
    assert exited(sure, 0)[0].phase is Phase.FINISHED
