"""Soundness of our plans, for comparisons where Samza defines nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grete_workbench.plans import ours
from grete_workbench.plans.compare import Answer, first_difference
from grete_workbench.plans.sound import is_sound
from grete_workbench.plans.stories import BROADCAST, INPUTS, ON_DISK, Start, Story, story

CONFIG = {"job.name": "fuzz", INPUTS: "local.in", BROADCAST: "local.rules#0", "stores.s.factory": ON_DISK}
GROWN = Story(
    0,
    (
        Start(CONFIG, {"local.in": 2, "local.rules": 3}, {}),
        Start(CONFIG, {"local.in": 4, "local.rules": 3}, {}),
    ),
)


def changed(answer: Answer, *, task: str, ssps: list[dict[str, object]]) -> Answer:
    """The answer with other SSPs for a task."""
    model = json.loads(answer.model)
    model["containers"]["0"]["tasks"][task]["system-stream-partitions"] = ssps
    return replace(answer, model=json.dumps(model))


def ssp(stream: str, partition: int) -> dict[str, object]:
    return {"system": "local", "stream": stream, "partition": partition}


def test_a_plan_of_ours_is_sound_at_every_start() -> None:
    answers = ours.plan(GROWN)
    assert [is_sound(GROWN, at, answers) for at in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("ssps", "why"),
    [
        ([ssp("in", 0), ssp("rules", 0)], "a partition that no task reads"),
        ([ssp("in", 0), ssp("in", 1), ssp("in", 2), ssp("rules", 0)], "one that two tasks read"),
        ([ssp("in", 0), ssp("in", 2)], "a broadcast one that a task does not read"),
        ([ssp("in", 0), ssp("in", 2), ssp("rules", 0), ssp("rules", 1)], "one that was not listed"),
    ],
)
def test_a_plan_is_not_sound_with(ssps: list[dict[str, object]], why: str) -> None:
    first, second = ours.plan(GROWN)
    assert not is_sound(GROWN, 1, [first, changed(second, task="Partition 0", ssps=ssps)]), why


def test_a_plan_is_not_sound_when_keys_leave_their_state() -> None:
    first, second = ours.plan(GROWN)
    one = changed(second, task="Partition 0", ssps=[ssp("in", 0), ssp("in", 3), ssp("rules", 0)])
    both = changed(one, task="Partition 1", ssps=[ssp("in", 1), ssp("in", 2), ssp("rules", 0)])
    assert not is_sound(GROWN, 1, [first, both])


@pytest.mark.parametrize(
    "mapping", [{"Partition 0": 1, "Partition 1": 0}, {"Partition 0": 0, "Partition 1": 0}]
)
def test_a_plan_is_not_sound_when_a_task_gets_another_changelog_partition(mapping: dict[str, int]) -> None:
    first, second = ours.plan(GROWN)
    assert not is_sound(GROWN, 1, [first, replace(second, changelog=mapping)])


def test_a_story_is_made_again_by_its_number() -> None:
    assert story(3, 4) == story(3, 4)
    assert len({repr(story(3, number)) for number in range(50)}) > 45


def test_an_order_alone_is_a_difference_in_bytes() -> None:
    answer = ours.plan(GROWN)[0]
    ssps = json.loads(answer.model)["containers"]["0"]["tasks"]["Partition 0"]["system-stream-partitions"]
    turned = changed(answer, task="Partition 0", ssps=ssps[::-1])
    same = changed(answer, task="Partition 0", ssps=ssps)
    found = first_difference([turned], [same])
    assert found is not None
    assert found.in_bytes
