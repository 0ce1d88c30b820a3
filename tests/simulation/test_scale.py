"""Large jobs without processes: streams of 1,000 partitions, a task for each, containers that come and go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from grete.config.settings import Settings
from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.decide import decide
from grete.coordinator.events import (
    Action,
    ContainerExited,
    ContainerPaused,
    Event,
    Grant,
    Launch,
    ModelChanged,
    Pause,
    RequestStop,
)
from grete.coordinator.job_model import Calculated, Remembered, calculate
from grete.coordinator.plan import JobPlan, container_specs
from grete.coordinator.state import State
from grete.model.ids import ContainerId, SystemStream, TaskName
from grete.wire import job_model_json

PARTITIONS = 1_000
CONTAINERS = 100
CPU_S = 60.0
"""For all steps together, on a machine that is busy with other tests; benchmarks.job_model has the figures."""


def planned(streams: int, containers: int, remembered: Remembered) -> tuple[Settings, Calculated]:
    inputs = {SystemStream("kafka", f"in{number}"): PARTITIONS for number in range(streams)}
    settings = Settings.of(
        {
            "job.name": "large",
            "job.launcher": "processors",
            "job.container.ids": ",".join(map(str, range(containers))),
            "job.systemstreampartition.grouper.factory": "GroupBySystemStreamPartitionFactory",
            "task.inputs": ",".join(f"kafka.{stream.stream}" for stream in inputs),
        }
    )
    return settings, calculate(settings, inputs, remembered)


def owners(calculated: Calculated) -> dict[TaskName, ContainerId]:
    return {task: id_ for id_, one in calculated.model.containers.items() for task in one.tasks}


class Containers:
    """Containers that do at once what they are told."""

    def __init__(self) -> None:
        self.state = State(RetryPolicy())
        self.launches: dict[ContainerId, int] = {}
        self.done: list[Action] = []

    def take(self, event: Event) -> None:
        """Decide, and answer until there is nothing to decide any more."""
        events = [event]
        while events:
            self.state, actions = decide(self.state, events.pop(0), 0.0)
            self.done += actions
            for action in actions:
                events += self._answers(action)

    def _answers(self, action: Action) -> Iterator[Event]:
        match action:
            case Launch(container, launch):
                self.launches[container] = launch
                if action.barrier:
                    yield ContainerPaused(container, launch, action.barrier)
            case Pause(container):
                yield ContainerPaused(container, self.launches[container], action.revision)
            case RequestStop(container):
                yield ContainerExited(container, self.launches.pop(container), 0)


@pytest.mark.parametrize("streams", [10, pytest.param(100, marks=pytest.mark.nightly)])
def test_a_container_that_joins_or_leaves_moves_as_few_of_many_tasks_as_equal_shares_allow(
    streams: int,
) -> None:
    """10,000 tasks, 100,000 by night: model, wire format and every decision of the rebalance."""
    tasks, began_s = streams * PARTITIONS, time.process_time()
    before: Calculated | None = None
    containers = Containers()
    for revision, count in enumerate((CONTAINERS, CONTAINERS + 1, CONTAINERS - 1), 1):
        settings, found = planned(streams, count, remembered(before))
        shares = {len(one.tasks) for one in found.model.containers.values()}
        assert (len(owners(found)), max(shares) - min(shares) <= 1) == (tasks, True)
        assert sorted(found.changelog.values()) == list(range(tasks))
        document = job_model_json.encode(found.model)
        assert len(document) > tasks
        specs = container_specs(JobPlan(settings, found.model, {}), mode="run")
        containers.done.clear()
        containers.take(ModelChanged(revision, specs))
        assert set(containers.launches) == set(specs)
        if before is not None:
            assert_few_moved(before, found)
            assert before.changelog == found.changelog
            assert any(isinstance(action, Grant) for action in containers.done)
        before = found
    assert time.process_time() - began_s < CPU_S


def remembered(before: Calculated | None) -> Remembered:
    if before is None:
        return Remembered()
    ssps = {
        name: tuple(task.ssps) for one in before.model.containers.values() for name, task in one.tasks.items()
    }
    return Remembered(owners(before), before.changelog, ssps)


def assert_few_moved(before: Calculated, after: Calculated) -> None:
    """Those that leave a container had to: it has gone, or had more than its share."""
    then, now = owners(before), owners(after)
    moved = sum(then[task] != container for task, container in now.items())
    assert moved == least(before.model.containers, after.model.containers)


def least(before: Mapping[ContainerId, object], after: Mapping[ContainerId, object]) -> int:
    """The fewest moves after which no two containers differ by more than one task."""
    had = sorted((len(before[id_].tasks) if id_ in before else 0 for id_ in after), reverse=True)  # type: ignore[attr-defined]
    total = sum(len(one.tasks) for one in before.values())  # type: ignore[attr-defined]
    share, larger = divmod(total, len(after))
    return total - sum(min(tasks, share + (place < larger)) for place, tasks in enumerate(had))
