"""What a coordinated job makes of what its monitors find: a new model, new inputs, or a problem that is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.assembly.coordinated import Surroundings
from grete.assembly.plan import Planner
from grete.assembly.view import View
from grete.coordinator.events import ModelChanged
from grete.coordinator.metadata_manager import MetadataMetrics
from grete.coordinator.state import RetryPolicy, State
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import JobId
from grete.model.job import JobModel
from grete.systems.base import StreamSpec
from grete.systems.local import LocalSystem
from grete.testing.clock import ManualClock
from grete.testing.simulator.coordinator import SimulatedJob

JOB = JobId("orders")
CONFIG = {
    "job.name": "orders",
    "task.class": "orders:Orders",
    "task.inputs": "local.orders-eu",
    "stores.totals.factory": "grete.store.sqlite",
    "job.config.rewriters": "inputs,environment",
    "job.config.rewriter.environment.class": "environment",
    "job.config.rewriter.inputs.class": "regex-input",
    "job.config.rewriter.inputs.system": "local",
    "job.config.rewriter.inputs.regex": "orders-.*",
}


class Watched:
    """A job whose coordinator has served its first model; `step` lets five minutes pass."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.clock = ManualClock()
        self.stream = CoordinatorStream(MemoryKeyedLog(self.clock), self.clock, source="test")
        self.stream.write_config(CONFIG, run_id="run", reason="")
        self.view = View(JOB, self.stream, MetadataMetrics(), "run", 1, self.clock)
        planner = Planner(JOB, home, self.stream, self.clock, stack)
        self._job = SimulatedJob(
            JOB,
            self.stream,
            planner,
            self.view,
            Surroundings(home, "http://127.0.0.1", home / "token"),
            1,
            self.clock,
            on_change=lambda plan: None,
            on_problem=lambda problem: None,
            post=lambda event: None,
        )
        self._job.begin(planner.plan(CONFIG))
        self._job.serve(1)

    def step(self) -> list[ModelChanged]:
        """Look at everything, and what the loop is told then; a model that is told is served."""
        assert self.view.monitors is not None
        self.clock.advance(300)
        self.view.monitors.tick()
        told: list[ModelChanged] = []
        for _ in range(3):
            events = list(self._job.poll(State(RetryPolicy())))
            told += [event for event in events if isinstance(event, ModelChanged)]
        for event in told:
            self._job.serve(event.revision)
        return told

    @property
    def model(self) -> JobModel:
        """The model that containers are served."""
        return self.view._serving()[1]


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Iterator[Watched]:
    system.create_stream(StreamSpec("orders-eu", 2))
    with ExitStack() as stack:
        yield Watched(home, stack)


def shown(model: JobModel) -> dict[str, list[str]]:
    return {task.name: sorted(map(str, task.ssps)) for task in model.tasks.values()}


def test_partitions_that_were_added_come_into_a_new_model_once(job: Watched, system: LocalSystem) -> None:
    assert job.step() == []
    system.add_partitions("orders-eu", 4)
    assert len(job.step()) == 1
    assert shown(job.model) == {
        "Partition 0": ["local.orders-eu.0", "local.orders-eu.2"],
        "Partition 1": ["local.orders-eu.1", "local.orders-eu.3"],
    }
    assert job.step() == []


def test_a_growth_that_keys_cannot_follow_is_a_problem_until_it_is_made_good(
    job: Watched, system: LocalSystem
) -> None:
    before = shown(job.model)
    system.add_partitions("orders-eu", 5)
    assert job.step() == []
    assert "had 2 partitions and has 5" in job.view.problem
    assert shown(job.model) == before
    system.add_partitions("orders-eu", 6)
    assert len(job.step()) == 1
    assert job.view.problem == ""
    assert len(job.model.tasks) == 2


def test_a_new_stream_that_the_regex_matches_becomes_an_input_and_nothing_else_is_rewritten(
    job: Watched, system: LocalSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMZA_TASK_CLASS", "other:Class")
    system.create_stream(StreamSpec("orders-us", 3))
    system.create_stream(StreamSpec("other", 3))
    assert len(job.step()) == 1
    assert job.stream.config()["task.inputs"] == "local.orders-eu,local.orders-us"
    assert job.stream.config()["task.class"] == CONFIG["task.class"]
    assert shown(job.model)["Partition 2"] == ["local.orders-us.2"]
    assert job.step() == []
