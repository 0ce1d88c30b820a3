from __future__ import annotations

from dataclasses import replace

import pytest

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    ContainerAtWork,
    ContainerCommitted,
    ContainerExited,
    ContainerLoaded,
    ContainerPaused,
    ContainerRequested,
    FenceOff,
    Grant,
    Kill,
    Launch,
    ModelChanged,
    RaiseFence,
    RecordHistory,
    RequestStop,
    Retreat,
    RetreatRefused,
    Run,
    StepDown,
    StepDownRequested,
    StopRequested,
    Tick,
)
from grete.coordinator.state import Barriers, ContainerSpec, Phase, State
from grete.model.ending import ExitCode
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
    return after, [action for action in actions if not isinstance(action, RecordHistory)]


def failed(
    state: State, *, code: int = 1, ran_s: float = 0.0, commits: bool = False, place: str = ""
) -> State:
    """The container ran so long and failed; when it is to be started again, that has happened."""
    one = state.containers[ZERO]
    if commits:
        state, _ = decide(state, ContainerCommitted(ZERO, one.launch), 0)
    now_s = one.failures.at_s + one.failures.pause_s + ran_s
    state, _ = decide(state, ContainerExited(ZERO, one.launch, code, "why", place), now_s)
    restart_at_s = state.containers[ZERO].restart_at_s
    return state if restart_at_s is None else decide(state, Tick(), restart_at_s)[0]


def test_a_job_is_finished_when_every_container_has_drained() -> None:
    state = started(None, ZERO, ONE)
    state, actions = exited(state, 0)
    assert (state.phase, actions) == (Phase.RUNNING, [])
    state, _ = exited(state, 0, container=ONE)
    assert state.phase is Phase.FINISHED


def test_a_failed_container_is_launched_again_under_a_new_number_after_a_pause() -> None:
    state, actions = exited(started(), 1, now_s=10)
    assert actions == []
    assert decide(state, Tick(), 10.9)[1] == ()
    state, again = decide(state, Tick(), 11)
    assert again == (Launch(ZERO, 2),)
    assert state.containers[ZERO].running


def test_the_job_fails_after_too_many_failures() -> None:
    state = started(RetryPolicy(count=2, window_s=100))
    for _ in range(2):
        state = failed(state, ran_s=1)
        assert state.phase is Phase.RUNNING
    state = failed(state, ran_s=1)
    assert state.phase is Phase.FAILED
    assert "why" in state.message


def test_slow_failures_come_to_an_end_too() -> None:
    """Nine attempts of two minutes each: a container that never ran for the whole window has never been well."""
    state, attempts = started(), 0
    while state.phase is Phase.RUNNING:
        state, attempts = failed(state, ran_s=120), attempts + 1
        assert attempts <= 9
    assert attempts == 9


def test_a_container_that_ran_for_the_whole_window_counts_from_zero_again() -> None:
    state = started(RetryPolicy(count=1, window_s=10))
    for _ in range(5):
        state = failed(state, ran_s=10)
    assert state.phase is Phase.RUNNING
    assert failed(state, ran_s=9.9).phase is Phase.FAILED


def test_pauses_grow_to_a_minute_and_do_not_count_as_running() -> None:
    state, pauses = started(RetryPolicy(count=-1, window_s=30)), []
    for _ in range(8):
        state = failed(state, ran_s=1)
        pauses.append(state.containers[ZERO].failures.pause_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert state.containers[ZERO].failures.count == 8


def test_no_wait_is_longer_than_configured() -> None:
    state, pauses = started(RetryPolicy(count=-1, longest_pause_s=2.5)), []
    for _ in range(4):
        state = failed(state, ran_s=1)
        pauses.append(state.containers[ZERO].failures.pause_s)
    assert pauses == [1, 2, 2.5, 2.5]


def test_who_has_committed_since_it_was_started_is_started_again_at_once() -> None:
    """It was an accident that ended it: a killed process, a machine. Pauses are for those that get nowhere."""
    state = failed(failed(started(), ran_s=1), ran_s=1, commits=True)
    assert state.containers[ZERO].running
    assert state.containers[ZERO].failures.pause_s == 0
    assert state.containers[ZERO].failures.count == 2


def test_a_message_that_cannot_be_processed_is_tried_once_more() -> None:
    once = failed(started(), code=3, place="local.views.0 offset 4")
    assert once.phase is Phase.RUNNING
    assert failed(once, code=3, place="local.views.0 offset 9").phase is Phase.RUNNING
    assert failed(once, code=3, place="local.views.0 offset 4").phase is Phase.FAILED


def test_who_is_asked_never_to_give_up_tries_a_message_again_and_again() -> None:
    state = started(RetryPolicy(count=-1))
    for _ in range(20):
        state = failed(state, code=3, place="local.views.0 offset 4")
    assert state.phase is Phase.RUNNING


def test_another_configuration_is_tried_at_once_and_with_a_clean_slate() -> None:
    state = failed(started(), code=3, place="local.views.0 offset 4")
    state, _ = exited(state, 1, now_s=5)
    changed = ModelChanged(2, {ZERO: ContainerSpec(f"tasks of {ZERO}", "another query", "p")})
    state, actions = decide(state, changed, 5)
    assert Launch(ZERO, 3) in actions
    assert state.containers[ZERO].failures.count == 0


def test_the_same_configuration_does_not_shorten_a_pause() -> None:
    state, _ = exited(started(), 1, now_s=5)
    same = ModelChanged(2, state.specs)
    assert [a for a in decide(state, same, 5)[1] if isinstance(a, Launch)] == []


def test_a_job_that_is_asked_to_stop_does_not_start_a_failed_container_again() -> None:
    state, _ = exited(started(), 1, now_s=5)
    state, _ = decide(state, StopRequested(30), 5)
    assert state.phase is Phase.STOPPED


def test_an_operator_does_not_have_to_wait_for_the_end_of_a_pause() -> None:
    state, _ = exited(started(), 1, now_s=5)
    state, actions = decide(state, ContainerRequested(ZERO, "restart"), 5)
    assert Launch(ZERO, 2) in actions
    assert decide(state, Tick(), 1000)[1] == ()


def test_a_container_that_is_stopped_during_its_pause_stays_stopped() -> None:
    state, _ = exited(started(), 1, now_s=5)
    state, _ = decide(state, ContainerRequested(ZERO, "stop"), 5)
    assert decide(state, Tick(), 1000)[1] == ()


@pytest.mark.parametrize(("code", "breaks_off"), [(0, False), (6, False), (-9, True), (1, True)])
def test_a_container_that_broke_off_and_leaves_the_model_is_fenced_off(code: int, breaks_off: bool) -> None:
    """No later incarnation writes for readers of its outputs that the last batch will never commit."""
    one_less = ModelChanged(2, {ZERO: ContainerSpec("all tasks", "q", "p")})
    asked, _ = decide(started(None, ZERO, ONE), one_less, 1)
    moved, _ = decide(asked, ContainerPaused(ZERO, 1, 2), 1)
    after, actions = exited(moved, code, container=ONE)
    assert [action for action in actions if isinstance(action, FenceOff)] == [FenceOff(ONE, 4)] * breaks_off
    assert (list(after.containers), after.launches) == ([ZERO], 4 if breaks_off else 3)


def test_who_gives_tasks_away_is_fenced_before_the_others_are_served_them() -> None:
    """Its reports may be forged or late: the fence, and not its word, keeps a task's second writer out."""
    apart = {ZERO: ContainerSpec("one task", "q", "p"), ONE: ContainerSpec("the other", "q", "p")}
    asked, _ = decide(started(None, ZERO), ModelChanged(2, apart), 1)
    asked, _ = decide(asked, ContainerPaused(ONE, 2, 2), 1)
    _, actions = decide(asked, ContainerPaused(ZERO, 1, 2), 1)
    assert actions == (RaiseFence(ZERO, 3), Grant(2), Run(ZERO), Run(ONE))


@pytest.mark.parametrize(("code", "may_write"), [(-9, True), (1, True), (0, False)])
def test_who_broke_off_is_fenced_before_the_others_are_served_its_tasks(code: int, may_write: bool) -> None:
    """A driver was killed and waits to be started again; its executors may go on until they notice."""
    state, _ = decide(started(None, ZERO, ONE), ContainerExited(ZERO, 1, code, "why"), 1)
    specs = {ZERO: ContainerSpec("other tasks", "q", "p"), ONE: state.specs[ONE]}
    _, actions = decide(state, ModelChanged(2, specs), 1)
    assert actions == ((FenceOff(ZERO, 3),) if may_write else ()) + (Grant(2), Launch(ZERO, 3 + may_write))


def test_changes_of_the_model_are_counted_and_the_last_one_is_timed() -> None:
    apart = {ZERO: ContainerSpec("one task", "q", "p"), ONE: ContainerSpec("the other", "q", "p")}
    state = started(None, ZERO, ONE)
    assert state.barriers == Barriers(started=1, ended=1)
    state, _ = decide(state, ModelChanged(2, {**apart, ONE: state.specs[ONE]}), 10)
    assert state.barriers == Barriers(started=2, ended=1, began_s=10), (
        "one container holds a task of the other's"
    )
    state, _ = decide(state, ContainerPaused(ZERO, 1, 2), 12)
    assert state.barriers == Barriers(started=2, ended=2, began_s=10), (
        "and has not said yet that it runs its own"
    )
    state, _ = decide(state, ContainerLoaded(ZERO, 1, 2), 13.5)
    assert state.barriers == Barriers(started=2, ended=2, last_s=3.5)


def test_a_change_whose_deadline_cuts_a_container_off_is_counted() -> None:
    apart = {ZERO: ContainerSpec("one task", "q", "p"), ONE: ContainerSpec("the other", "q", "p")}
    state, _ = decide(started(None, ZERO, ONE), ModelChanged(2, apart), 10)
    state, _ = decide(state, Tick(), 40)
    assert state.barriers == Barriers(started=2, ended=2, timed_out=1, last_s=30)


def test_a_container_that_keeps_its_tasks_keeps_its_fence() -> None:
    specs = started().specs
    changed = {ZERO: replace(specs[ZERO], query="another")}
    _, actions = decide(started(), ModelChanged(2, changed), 1)
    assert actions == (Grant(2), Run(ZERO))


def test_a_container_that_left_the_model_and_ends_later_is_fenced_off_too() -> None:
    state = started(None, ZERO, ONE)
    state = replace(state, specs={ZERO: state.specs[ZERO]})
    _, actions = exited(state, 1, container=ONE)
    assert actions == [FenceOff(ONE, 3)]


def test_a_retry_count_of_zero_fails_at_once_and_a_negative_one_never() -> None:
    assert failed(started(RetryPolicy(count=0))).phase is Phase.FAILED
    state = started(RetryPolicy(count=-1))
    for _ in range(50):
        state = failed(state)
    assert state.phase is Phase.RUNNING


@pytest.mark.parametrize("exit_code", [2, 7, 8])
def test_what_cannot_succeed_is_not_tried_again(exit_code: int) -> None:
    assert exited(started(), exit_code)[0].phase is Phase.FAILED


def changed(state: State, *, process: str = "p", standby: bool = False) -> State:
    """The job has changed to another configuration while it ran."""
    specs = {id_: replace(one, query="other", process=process) for id_, one in state.specs.items()}
    if standby:
        specs[ZERO] = replace(specs[ZERO], standby=True)
    return decide(state, ModelChanged(state.revision + 1, specs, cause="configuration change: x"), 1)[0]


def test_a_change_with_which_a_container_never_was_at_work_is_taken_back() -> None:
    state, actions = exited(changed(started(None, ZERO, ONE)), 2)
    assert actions == [Retreat(ZERO, "container 0 ended with code 2: why")]
    assert state.phase is Phase.RUNNING
    state, before = decide(state, ModelChanged(3, started(None, ZERO, ONE).specs, cause="taken back"), 2)
    assert [type(action) for action in before] == [Grant, Launch, Run], (
        "one begins again, one only changes back"
    )
    refused, _ = exited(state, 2)
    assert refused.phase is Phase.RUNNING
    assert decide(refused, RetreatRefused(ZERO, "none before"), 3)[0].phase is Phase.FAILED


def test_who_was_at_work_with_a_change_fails_by_itself() -> None:
    state = changed(started())
    state, _ = decide(state, ContainerAtWork(ZERO, 1, 2), 1)
    assert exited(state, 2)[0].phase is Phase.FAILED


def test_a_change_that_needs_nothing_of_a_container_is_no_proof_of_the_one_before() -> None:
    state = changed(started(None, ZERO, ONE))
    moved = {**state.specs, ONE: replace(state.specs[ONE], tasks="more")}
    state, _ = decide(state, ModelChanged(3, moved, cause="configuration change: z"), 2)
    state, _ = decide(state, ContainerPaused(ONE, 2, 3), 2)
    assert [type(action) for action in exited(state, 2)[1]] == [Retreat]


def test_it_is_not_the_one_before_that_shows_whether_a_new_process_gets_to_work() -> None:
    state = changed(started(), process="more memory")
    state, _ = decide(state, ContainerAtWork(ZERO, 1, 1), 1)
    state, actions = exited(state, 5)
    assert actions == [Launch(ZERO, 2)]
    assert [type(action) for action in exited(state, 2)[1]] == [Retreat]


def test_a_process_that_crashes_with_a_change_is_tried_as_often_as_any() -> None:
    state = changed(started(RetryPolicy(count=1)))
    state = failed(state)
    assert state.containers[ZERO].running
    assert [type(action) for action in exited(state, 1, now_s=100)[1]] == [Retreat]


@pytest.mark.parametrize("code", [ExitCode.POISON, ExitCode.OFFSETS_GONE])
def test_what_a_container_has_read_is_no_fault_of_a_change(code: int) -> None:
    state = failed(changed(started(RetryPolicy(count=0))), code=code, place="in 0 7")
    assert state.phase is Phase.FAILED


def test_a_change_that_waits_is_followed_instead_of_going_back() -> None:
    state = changed(started(None, ZERO, ONE))
    specs = {ZERO: ContainerSpec("other tasks", "q", "p"), ONE: ContainerSpec("others", "q", "p")}
    state, _ = decide(state, ModelChanged(3, specs, cause="configuration change: y"), 2)
    state, actions = exited(state, 2)
    assert actions == []
    state, granted = decide(state, ContainerPaused(ONE, 2, 3), 2)
    assert [action.container for action in granted if isinstance(action, Launch)] == [ZERO]


def test_a_standby_container_takes_no_change_back() -> None:
    state, actions = exited(changed(started(None, ZERO, ONE), standby=True), 2)
    assert (state.phase, actions) == (Phase.RUNNING, [])
    assert state.containers[ZERO].given_up


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
    assert [a for a in actions if not isinstance(a, RecordHistory)] == [RequestStop(ZERO)]
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
    """A container that drained just when it was resumed: it has not reported yet that it runs the new query."""
    state = started()
    changed = {ZERO: ContainerSpec(f"tasks of {ZERO}", "another query", "p")}
    state, actions = decide(state, ModelChanged(2, changed), 1)
    assert Run(ZERO) in actions
    unsure, actions = exited(state, 0)
    assert actions == [Launch(ZERO, 2)]
    assert unsure.phase is Phase.RUNNING
    sure, _ = decide(state, ContainerLoaded(ZERO, 1, 2), 1)
    assert exited(sure, 0)[0].phase is Phase.FINISHED


def exit_row(state: State, code: int) -> dict[str, str]:
    """The container's exit in the history."""
    event = ContainerExited(ZERO, state.containers[ZERO].launch, code, "" if code in (0, 6) else "why")
    records = [action for action in decide(state, event, 5)[1] if isinstance(action, RecordHistory)]
    return dict(records[0].details)


def test_history_says_why_a_container_was_asked_to_end() -> None:
    stopping, _ = decide(started(), StopRequested(30, "asked by ops"), 1)
    assert exit_row(stopping, 6) == {
        "container": "0",
        "exit-code": "6",
        "meaning": "stopped",
        "cause": "asked by ops",
        "reason": "",
    }
    other = ModelChanged(
        2, {ZERO: ContainerSpec(f"tasks of {ZERO}", "q", "r")}, cause="configuration change: task.opts"
    )
    replaced, _ = decide(started(), other, 1)
    for code in (6, -15):
        row = exit_row(replaced, code)
        assert (row["meaning"], row["cause"], row["reason"]) == (
            "stopped",
            "configuration change: task.opts",
            "",
        )
    asked, _ = decide(started(), ContainerRequested(ZERO, "restart", reason="new disk"), 1)
    assert exit_row(asked, 6)["cause"] == "restart of the container: new disk"


@pytest.mark.parametrize(
    ("code", "meaning"), [(1, "failed"), (3, "poison message"), (8, "cannot work"), (-9, "killed")]
)
def test_history_has_what_ended_a_container_without_a_request(code: int, meaning: str) -> None:
    row = exit_row(started(), code)
    assert (row["meaning"], row["cause"], row["reason"]) == (meaning, "", "why")


def test_a_coordinator_steps_down_while_the_job_runs_and_not_while_it_stops() -> None:
    state = started()
    assert decide(state, StepDownRequested("upgrade"), 1) == (state, (StepDown("upgrade"),))
    leaving = StepDownRequested("SIGTERM", ends_process=True)
    assert decide(state, leaving, 1) == (state, (StepDown("SIGTERM", ends_process=True),))
    stopping, _ = decide(state, StopRequested(5.0), 1)
    assert decide(stopping, StepDownRequested("upgrade"), 2) == (stopping, ())
