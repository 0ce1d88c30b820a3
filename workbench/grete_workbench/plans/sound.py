"""Whether a plan of ours is right by itself, worked out from the configuration alone: where Samza has no opinion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grete.config.settings import Settings
from grete_workbench.plans.compare import Answer
from grete_workbench.plans.stories import Start, Story

Readers = dict[str, set[str]]
"""Task names by `system.stream.partition`."""


def is_sound(story: Story, at: int, ours: Sequence[Answer]) -> bool:
    """Each partition has the readers it should have and, of a stateful job, those that have its keys' state.

    And each task has the changelog partition that it ever had, and no other task has it.
    """
    start, answer = story.starts[at], ours[at]
    settings = Settings.of(start.config)
    readers = readers_of(answer)
    if not _keeps_changelogs(at, ours):
        return False
    shared = {str(ssp) for ssp in settings.task.broadcast_inputs}
    own = {f"{s}.{number}" for s in settings.task.inputs for number in range(start.streams[str(s)])}
    if set(readers) != own | shared:
        return False
    if settings.job.reads_all_in_each_task and reads_everything(answer):
        return True
    tasks = set().union(*readers.values())
    if any(readers[ssp] != tasks for ssp in shared) or any(len(readers[ssp]) != 1 for ssp in own - shared):
        return False
    return not _follows_keys(start) or _has_followed(story, at, ours, own - shared)


def reads_everything(answer: Answer) -> bool:
    """Whether every task reads every partition, and there is a task for each container that is no standby."""
    readers = readers_of(answer)
    tasks = set().union(*readers.values()) if readers else set()
    containers = [id_ for id_ in _containers(answer) if "-" not in id_]
    return bool(tasks) and all(names == tasks for names in readers.values()) and len(tasks) >= len(containers)


def _containers(answer: Answer) -> dict[str, Any]:
    """The model's containers; none when it was refused."""
    found: dict[str, Any] = json.loads(answer.model)["containers"] if answer.model else {}
    return found


def readers_of(answer: Answer) -> Readers:
    """The active tasks that read each partition."""
    found: Readers = {}
    for container in _containers(answer).values():
        for task in container["tasks"].values():
            if task["task-mode"] == "Active":
                for ssp in task["system-stream-partitions"]:
                    name = f"{ssp['system']}.{ssp['stream']}.{ssp['partition']}"
                    found.setdefault(name, set()).add(task["task-name"])
    return found


def _follows_keys(start: Start) -> bool:
    settings = Settings.of(start.config)
    return settings.job.is_expansion_enabled and settings.is_stateful


def reads_of(answer: Answer, stream: str) -> int:
    """The partitions of a stream that active tasks read, one that several read counted for each of them."""
    return sum(len(tasks) for ssp, tasks in readers_of(answer).items() if ssp.rpartition(".")[0] == stream)


def last_plan(at: int, answers: Sequence[Answer]) -> Answer:
    """The last answer before the start `at` that was no refusal; an empty one without any."""
    return next((each for each in reversed(answers[:at]) if each.refused is None), Answer())


def _remembered(at: int, ours: Sequence[Answer]) -> Readers:
    """The active readers of each partition that the stream held when the start began."""
    answer = last_plan(at, ours)
    active = {task for task, mode in answer.modes.items() if mode == "Active"}
    return {ssp: set(names) & active for ssp, names in answer.tasks.items()}


def shared_before(at: int, ours: Sequence[Answer]) -> set[str]:
    """The partitions that several tasks read before."""
    return {ssp for ssp, tasks in _remembered(at, ours).items() if len(tasks) > 1}


def partition_counts(
    story: Story, at: int, ours: Sequence[Answer]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """How many partitions of each stream were read before, and how many there are now."""
    before: dict[str, int] = {}
    for ssp in _remembered(at, ours):
        stream = ssp.rpartition(".")[0]
        before[stream] = before.get(stream, 0) + 1
    return before, story.starts[at].streams


def _keeps_changelogs(at: int, ours: Sequence[Answer]) -> bool:
    now, before = ours[at].changelog, last_plan(at, ours).changelog
    active = {task: number for task, number in now.items() if not task.startswith("Standby-")}
    return len(set(active.values())) == len(active) and all(now.get(task) == n for task, n in before.items())


def _has_followed(story: Story, at: int, ours: Sequence[Answer], moving: set[str]) -> bool:
    remembered, readers = _remembered(at, ours), readers_of(ours[at])
    before, _ = partition_counts(story, at, ours)
    shared = {str(ssp) for ssp in Settings.of(story.starts[at].config).task.broadcast_inputs}
    for ssp in moving:
        stream, _, number = ssp.rpartition(".")
        if stream in before:
            origin = f"{stream}.{int(number) % before[stream]}"
            owners = remembered.get(origin, set())
            if origin not in shared and len(owners) == 1 and readers[ssp] != owners:
                return False
    return True
