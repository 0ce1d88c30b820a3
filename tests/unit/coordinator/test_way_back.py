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
from grete.metadata.history import History
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
    assert "no other has run since this coordinator leads" in refused.reason


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
