"""How a job stands, in a word and a sentence."""

from __future__ import annotations

from dataclasses import replace

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    ContainerCommitted,
    ContainerExited,
    ContainerRequested,
    ModelChanged,
    Tick,
)
from grete.coordinator.health import RESTARTING, RUNNING, STARTING, JobHealth
from grete.coordinator.health import standing as standing_at
from grete.coordinator.monitors.containers import ContainerFacts, Facts
from grete.coordinator.progress import ReportedProgress
from grete.coordinator.state import ContainerSpec, State
from grete.model.ids import ContainerId
from grete.testing.clock import ManualClock
from grete.wire.container_protocol import Heartbeat

ZERO, ONE = ContainerId("0"), ContainerId("1")
WHY = "KeyError 'page' at local.views.0 offset 4"


def started(*containers: ContainerId, policy: RetryPolicy | None = None) -> State:
    specs = {id_: ContainerSpec(f"tasks of {id_}", "q", "p") for id_ in containers}
    return decide(State(policy or RetryPolicy()), ModelChanged(1, specs), 0)[0]


def standing(state: State, reported: Facts) -> JobHealth:
    return standing_at(state, reported, lambda at_s: f"{at_s:g} s")


def said(state: str, message: str = "") -> ContainerFacts:
    return ContainerFacts(1, 0.0, state, message=message)


def failed(state: State, times: int = 1) -> State:
    for _ in range(times):
        state, _ = decide(state, Tick(), 10_000)
        now_s = state.containers[ZERO].failures.at_s + 100
        event = ContainerExited(ZERO, state.containers[ZERO].launch, 1, WHY)
        state, _ = decide(state, event, now_s)
    return state


def test_a_job_starts_spark_until_its_query_runs() -> None:
    state = started(ZERO)
    assert standing(state, {}) == JobHealth(STARTING)
    assert standing(state, {ZERO: said("starting")}) == JobHealth(STARTING)
    assert standing(state, {ZERO: said("running")}) == JobHealth(RUNNING)
    assert standing(state, {ZERO: said("paused")}) == JobHealth(RUNNING)


def test_a_job_whose_container_is_not_begun_by_its_cluster_manager_says_why() -> None:
    waits = ContainerFacts(1, is_awaited=True, message="0/3 nodes are available\nand so on")
    said_so = "has not begun, the cluster manager says: 0/3 nodes are available"
    assert standing(started(ZERO), {ZERO: waits}) == JobHealth(STARTING, said_so)
    assert standing(started(ZERO), {ZERO: ContainerFacts(1, is_awaited=True)}) == JobHealth(STARTING)
    restarted = standing(failed(started(ZERO)), {ZERO: waits})
    assert restarted.word == RESTARTING
    assert restarted.message.startswith("restarting 1/")
    assert restarted.message.endswith(f"{WHY}; {said_so}")


def test_a_job_that_fails_says_how_often_it_may_and_why() -> None:
    third = failed(started(ZERO), 3)
    again_at_s = third.containers[ZERO].failures.at_s + 4
    waits = JobHealth(RESTARTING, f"restarting 3/9, next try at {again_at_s:g} s: {WHY}", 3)
    assert standing(third, {}) == waits
    tried, _ = decide(third, Tick(), again_at_s)
    assert standing(tried, {}) == JobHealth(RESTARTING, f"restarting 3/9: {WHY}", 3)
    for_ever = failed(started(ZERO, policy=RetryPolicy(count=-1)))
    assert standing(for_ever, {}).message == f"restarting 1, next try at 101 s: {WHY}"


def test_a_message_of_a_job_that_fails_keeps_its_paths_whole() -> None:
    path = "/a/path/of/some/length/" * 20
    state, _ = decide(started(ZERO), ContainerExited(ZERO, 1, 1, f"{path} " * 20), 1)
    _, _, said = standing(state, {}).message.partition(": ")
    assert set(said.partition(" ...")[0].split()) == {path}


def test_a_job_that_commits_again_has_nothing_to_say() -> None:
    state, _ = decide(failed(started(ZERO)), Tick(), 10_000)
    assert standing(state, {ZERO: said("running")}) == JobHealth(RUNNING, f"restarted 1/9: {WHY}", 1)
    state, _ = decide(state, ContainerCommitted(ZERO, state.containers[ZERO].launch), 10_000)
    assert standing(state, {ZERO: said("running")}) == JobHealth(RUNNING)


def test_a_job_that_waits_says_for_what_while_it_tries_again_too() -> None:
    full = "no room for what Spark writes: No space left on device; free space\nfurther words"
    waits = JobHealth(RUNNING, f"waits until it can go on: {full.splitlines()[0]}")
    for state in ("waiting", "starting", "running"):
        assert standing(started(ZERO), {ZERO: said(state, full)}) == waits
    assert standing(started(ZERO), {ZERO: said("failed", "KeyError")}) == JobHealth(RUNNING), (
        "its exit says it"
    )
    two = standing(started(ZERO, ONE), {ZERO: said("running"), ONE: said("waiting", full)})
    assert two.message == f"container 1 {waits.message}"


def test_an_outage_that_no_batch_shows_to_be_over_is_over_after_a_minute_at_work() -> None:
    clock = ManualClock()
    progress = ReportedProgress(clock)

    def message(state: str) -> str:
        progress.record("0", Heartbeat(1, state=state, message="the disk is full"))
        return progress.by_container()["0"].heartbeat.message

    for state in ("waiting", "starting", "running", "waiting", "running"):
        clock.advance(59)
        assert message(state) == "the disk is full"
    clock.advance(2)
    assert not message("running")
    assert message("waiting") == "the disk is full"


def test_a_job_of_which_a_part_does_not_run_says_which() -> None:
    state = started(ZERO, ONE, policy=RetryPolicy(count=0, fail_job=False))
    given_up = failed(state)
    assert standing(given_up, {ONE: said("running")}) == JobHealth(
        RUNNING, f"container 0 given up after 1 failures: {WHY}"
    )
    held, _ = decide(state, ContainerRequested(ONE, "stop"), 1)
    assert standing(held, {ZERO: said("running")}) == JobHealth(RUNNING), (
        "the history says who rests, and status asks it"
    )


def test_a_standby_container_is_not_spoken_of() -> None:
    state = started(ZERO)
    copies = replace(state.specs[ZERO], standby=True)
    assert standing(replace(state, specs={ZERO: copies}), {}).message == ""
