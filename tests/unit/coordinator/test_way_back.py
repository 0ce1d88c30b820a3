"""A change with which a container does not get to work is taken back, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.watched_job import IN_FORCE, ZERO, Watched

from grete.coordinator.events import ModelChanged, RetreatRefused
from grete.coordinator.state import ContainerState
from grete.errors import LogError
from grete.metadata.history import History
from grete.metadata.job_state import JobState, write_state
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Iterator[Watched]:
    system.create_stream(StreamSpec("orders-eu", 2))
    with ExitStack() as stack:
        yield Watched(home, stack)


def batch_size(job: Watched) -> str | None:
    return job.stream.config().get("task.max.records.per.batch")


def test_a_change_is_taken_back_to_what_was_in_force_and_seen_at_work(job: Watched) -> None:
    job.configure()
    assert len(job.changed_models()) == 1
    job.stream.change_config({"task.max.records.per.batch": "8"}, run_id="run")
    trying = replace(IN_FORCE, containers={ZERO: ContainerState(untried=True)})
    assert [event for event in job.events(trying) if isinstance(event, ModelChanged)]
    job.retreat()
    assert batch_size(job) is None, "nobody was at work with 7"
    [again] = job.changed_models()
    assert again.cause == "configuration change: task.max.records.per.batch"
    assert job.view.problem == "the configuration before is in force again: container 0 ended"
    assert [row.event for row in History(job.stream).rows()].count("config-refused") == 1
    job.configure()
    assert len(job.changed_models()) == 1
    assert job.view.problem == ""


def test_a_change_that_still_waits_for_its_barrier_has_not_worked(job: Watched) -> None:
    job.events()
    job.configure()
    assert [event for event in job.events() if isinstance(event, ModelChanged)]
    job.stream.change_config({"task.max.records.per.batch": "8"}, run_id="run")
    assert len(job.changed_models()) == 1
    job.retreat()
    assert batch_size(job) is None


def test_a_change_that_came_meanwhile_is_not_lost_by_going_back(job: Watched) -> None:
    job.configure()
    assert len(job.changed_models()) == 1
    job.stream.change_config({"task.max.records.per.batch": "8"}, run_id="run")
    job.retreat()
    assert batch_size(job) == "8"
    assert len(job.changed_models()) == 1


@pytest.mark.parametrize("was_changed", [False, True])
def test_there_is_a_way_back_once(job: Watched, was_changed: bool) -> None:
    if was_changed:
        job.configure()
        job.changed_models()
        job.retreat()
        trying = replace(IN_FORCE, containers={ZERO: ContainerState(untried=True)})
        assert [event for event in job.events(trying) if isinstance(event, ModelChanged)]
        assert job.posted == []
    job.retreat()
    [refused] = job.posted
    assert isinstance(refused, RetreatRefused)
    assert "nobody knows of another that the containers were at work with" in refused.reason


def test_brokers_that_are_away_do_not_hinder_the_way_back(job: Watched) -> None:
    job.configure()
    job.changed_models()
    job.brokers.are_away = True
    job.retreat()
    assert (batch_size(job), job.posted) == (None, [])
    assert job.changed_models() == []
    job.brokers.are_away = False
    job.clock.advance(10)
    assert len(job.changed_models()) == 1


def taken_over(job: Watched, epoch: int = 3) -> tuple[ModelChanged, str | None]:
    """The first model of the next coordinator, and what the job has when a container does not get to work with it."""
    model = job.lead(epoch)
    job.retreat()
    return model, batch_size(job)


@pytest.mark.parametrize("was_followed", [False, True])
def test_a_coordinator_that_takes_over_knows_what_worked(job: Watched, was_followed: bool) -> None:
    job.events()
    job.configure()
    if was_followed:
        trying = replace(IN_FORCE, containers={ZERO: ContainerState(untried=True)})
        assert [event for event in job.events(trying) if isinstance(event, ModelChanged)]
    model, size = taken_over(job)
    assert (model.cause, size) == ("configuration change: task.max.records.per.batch", None)


def test_what_worked_is_noted_on_a_full_disk_too(job: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> int:
        raise LogError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(job.stream.log, "append_urgently", job.stream.log.append)
        patched.setattr(job.stream.log, "append", full)
        job.events()
    job.configure()
    assert taken_over(job)[1] is None


def test_what_was_seen_at_work_is_not_on_trial_for_the_next_coordinator(job: Watched) -> None:
    job.events()
    job.configure()
    job.changed_models()
    job.events()
    model, size = taken_over(job)
    assert (model.cause, size) == ("", "7")
    [refused] = job.posted
    assert isinstance(refused, RetreatRefused)


@pytest.mark.parametrize("how", ["submitted", "ended", "never seen at work"])
def test_what_a_job_is_started_with_is_not_on_trial(job: Watched, how: str) -> None:
    """Whoever starts a job is there, and is told."""
    if how != "never seen at work":
        job.events()
    job.configure()
    if how == "submitted":
        job.stream.change_config({"task.max.records.per.batch": "8"}, run_id="another run")
    if how == "ended":
        write_state(job.stream, JobState("stopped", "run", 2))
    assert taken_over(job)[0].cause == ""
