"""Promises of every grouper (`grete.grouping.ssp`, `grete.grouping.task_names`).

Subclass with a fixture `grouper`. `READS_ALL_IN_EACH_TASK` is True of SSP groupers that give each partition to
several tasks; these cannot have broadcast inputs.
"""

from __future__ import annotations

import pytest

from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.grouping.ssp import SspGrouper
from grete.grouping.task_names import Containers, TaskNameGrouper
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName

SETTINGS = Settings.of({"processor.list": "0,1"})
TASKS = sorted(TaskName(f"Partition {number}") for number in range(12))


def _ssps(**partitions: int) -> list[SystemStreamPartition]:
    return [
        SystemStreamPartition("local", stream, partition)
        for stream, count in partitions.items()
        for partition in range(count)
    ]


def _containers(count: int) -> Containers:
    return Containers({str(number): "ANY_HOST" for number in range(count)}, lambda: TASKS)


class SspGrouperConformance:
    """The suite of groupers of SSPs."""

    READS_ALL_IN_EACH_TASK = False

    def test_every_partition_is_read_and_by_one_task(self, grouper: SspGrouper) -> None:
        """Else records were lost, or processed twice."""
        ssps = _ssps(orders=5, payments=3)
        read = [ssp for group in grouper(ssps, SETTINGS).values() for ssp in group]
        assert set(read) == set(ssps)
        assert self.READS_ALL_IN_EACH_TASK or len(read) == len(ssps)

    def test_every_task_reads_something(self, grouper: SspGrouper) -> None:
        """And nothing twice."""
        for group in grouper(_ssps(orders=5, payments=3), SETTINGS).values():
            assert group
            assert len(set(group)) == len(group)

    def test_equal_partitions_make_equal_tasks(self, grouper: SspGrouper) -> None:
        """In whatever order they come: a task's name leads to its checkpoint and its state."""
        ssps = _ssps(orders=5, payments=3)
        first, second = grouper(ssps, SETTINGS), grouper(ssps[::-1], SETTINGS)
        assert {task: set(group) for task, group in first.items()} == {
            task: set(group) for task, group in second.items()
        }

    def test_what_grows_leaves_every_task_what_it_has(self, grouper: SspGrouper) -> None:
        """New partitions and streams may make new tasks."""
        before = grouper(_ssps(orders=4), SETTINGS)
        after = grouper(_ssps(orders=8, payments=2), SETTINGS)
        for task, group in before.items():
            assert set(group) <= set(after[task])

    def test_every_task_reads_what_is_broadcast(self, grouper: SspGrouper) -> None:
        """And another partition beside it; a grouper whose tasks read everything refuses it."""
        settings = Settings.of({**SETTINGS.raw, "task.broadcast.inputs": "local.rates#0"})
        shared = SystemStreamPartition("local", "rates", 0)
        ssps = [*_ssps(orders=3), shared]
        if self.READS_ALL_IN_EACH_TASK:
            with pytest.raises(ConfigError):
                grouper(ssps, settings)
            return
        for group in grouper(ssps, settings).values():
            assert shared in group
            assert len(group) > 1


class TaskNameGrouperConformance:
    """The suite of groupers of tasks."""

    @pytest.mark.parametrize("count", [1, 2, 5, 12])
    def test_every_task_is_in_one_container(self, grouper: TaskNameGrouper, count: int) -> None:
        """Of those that there are, with something to do."""
        groups = grouper(TASKS, _containers(count))
        assert sorted(task for group in groups.values() for task in group) == TASKS
        assert set(groups) <= {ContainerId(str(number)) for number in range(count)}
        assert all(groups.values())

    def test_equal_tasks_make_equal_containers(self, grouper: TaskNameGrouper) -> None:
        """Else containers would be restarted for nothing."""
        assert grouper(TASKS, _containers(3)) == grouper(list(TASKS), _containers(3))
