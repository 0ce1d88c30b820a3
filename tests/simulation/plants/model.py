"""Mistakes in the job model and in what may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grete.coordinator import job_model
from grete.grouping import ssp as grouping
from grete.metadata import config_in_force
from grete.model.ids import TaskName
from grete_workbench.simulator.plants import Plant, Replaced


def _given_again(replaced: Replaced) -> None:
    mapping = job_model.changelog_mapping

    def given(tasks: Iterable[TaskName], previous: Mapping[TaskName, int]) -> dict[TaskName, int]:
        again = mapping(tasks, {})
        last = len(again) - 1
        return {task: last - partition for task, partition in again.items()} if previous else again

    replaced(job_model, "changelog_mapping", given)


def _shared_partition(replaced: Replaced) -> None:
    mapping = job_model.changelog_mapping
    replaced(
        job_model, "changelog_mapping", lambda tasks, previous: dict.fromkeys(mapping(tasks, previous), 0)
    )


def _partition_forgotten(replaced: Replaced) -> None:
    by_partition = grouping.group_by_partition

    def forget(ssps: Any, config: Mapping[str, str]) -> Any:
        groups = by_partition(ssps, config)
        return dict(list(groups.items())[:-1]) if len(groups) > 1 else groups

    replaced(grouping, "group_by_partition", forget)


def _keys_move(replaced: Replaced) -> None:
    replaced(job_model, "keep_keys_with_their_state", lambda groups, previous, config: groups)


def _set_once_accepted(replaced: Replaced) -> None:
    replaced(config_in_force, "set_once_changes", lambda *configs: [])


PLANTS = {
    "changelog-partitions-anew": Plant(
        "changelog partitions are given out again with each model", _given_again, ("container-count",)
    ),
    "changelog-partition-shared": Plant("all tasks share a changelog partition", _shared_partition),
    "partition-forgotten": Plant("the grouper leaves out a partition", _partition_forgotten),
    "expansion-moves-keys": Plant(
        "new partitions go to new tasks, away from their keys' state", _keys_move, ("expand",)
    ),
    "set-once-accepted": Plant(
        "a change that loses the job's state is accepted", _set_once_accepted, ("set-once",)
    ),
}
