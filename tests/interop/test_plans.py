"""Random jobs, starts, growth and moves through the real planner and ours: no unintended difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from grete.config.settings.tasks import TaskSettings
from grete.coordinator import job_model
from grete.grouping import expansion, task_names
from grete.grouping.ssp import Groups
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete_workbench.plans.__main__ import main
from grete_workbench.plans.campaign import run
from grete_workbench.plans.compare import Answer
from grete_workbench.plans.samza import SamzaPlanner
from grete_workbench.plans.stories import Story, story

pytestmark = pytest.mark.timeout(600)
STORIES = [story(1, number) for number in range(250)]


class Answers:
    """Samza's answers, computed once for each story."""

    def __init__(self, planner: SamzaPlanner) -> None:
        self._planner = planner
        self._known: dict[str, Sequence[Answer]] = {}

    def plan(self, story: Story) -> Sequence[Answer]:
        key = repr(story)
        if key not in self._known:
            self._known[key] = self._planner.plan(story)
        return self._known[key]


@pytest.fixture(scope="module")
def samza() -> Iterator[Answers]:
    with SamzaPlanner() as planner:
        yield Answers(planner)


def test_no_plan_differs_but_where_it_is_meant_to(samza: Answers) -> None:
    report = run(STORIES, samza.plan)
    assert [f"case {case.story.number}, {case.difference}" for case in report.found] == []
    assert report.agreed > 0.8 * report.cases
    assert report.refused < 0.3 * report.starts


@pytest.mark.parametrize(
    ("seed", "number", "name"),
    [(3, 77, "every-container-reads-everything"), (3, 306, "shared-partitions-count-once")],
)
def test_a_difference_that_was_looked_into_has_its_class(
    seed: int, number: int, name: str, samza: Answers
) -> None:
    assert run([story(seed, number)], samza.plan).in_plans == {name: 1}


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_no_plan_of_twenty_thousand_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "20000", "--seed", "2"]) == 0, capsys.readouterr().out


# --- bugs that were, or could be: each has to be found ---


_INPUTS = vars(TaskSettings)["inputs"].func


def _inputs_and_broadcast_streams(settings: TaskSettings) -> tuple[SystemStream, ...]:
    return (*_INPUTS(settings), *(ssp.system_stream for ssp in settings.broadcast_inputs))


def _no_broadcast_partition_counts(ssps: Iterable[SystemStreamPartition]) -> dict[SystemStream, int]:
    readers: dict[SystemStreamPartition, int] = {}
    for ssp in ssps:
        readers[ssp] = readers.get(ssp, 0) + 1
    return _count([ssp for ssp, count in readers.items() if count == 1])


def _count(ssps: Sequence[SystemStreamPartition]) -> dict[SystemStream, int]:
    return {
        stream: sum(s.system_stream == stream for s in ssps) for stream in {s.system_stream for s in ssps}
    }


def _keys_stay_nowhere(groups: Groups, previous: object, config: object) -> Groups:
    return groups


def _changelog_partitions_given_again(tasks: Iterable[TaskName], previous: object) -> dict[TaskName, int]:
    return {task: number for number, task in enumerate(sorted(tasks))}


def _in_numeric_order(tasks: Sequence[TaskName], containers: task_names.Containers) -> task_names.Assignment:
    hosts = {id_: containers.hosts[id_] for id_ in sorted(containers.hosts, key=int)}
    return _BY_CONTAINER_IDS(tasks, replace(containers, hosts=hosts))


_BY_CONTAINER_IDS = task_names.by_container_ids
PLANTS: dict[str, tuple[object, str, object]] = {
    "broadcast streams make tasks": (TaskSettings, "inputs", property(_inputs_and_broadcast_streams)),
    "broadcast partitions do not count": (expansion, "_partition_counts", _no_broadcast_partition_counts),
    "keys are not followed": (job_model, "keep_keys_with_their_state", _keys_stay_nowhere),
    "changelog partitions are given again": (
        job_model,
        "changelog_mapping",
        _changelog_partitions_given_again,
    ),
    "processors in numeric order": (task_names, "by_container_ids", _in_numeric_order),
    "inputs in name order": (job_model, "input_order", sorted),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str, samza: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug = PLANTS[name]
    monkeypatch.setattr(owner, attribute, bug)
    assert run(STORIES, samza.plan).unexplained > 0
