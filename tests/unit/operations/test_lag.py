"""How far behind a job is: per SSP, per task, in all."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grete.checkpoint.lag import JobLag, measure_lag
from grete.config.settings import Settings
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.systems.admin import KeyOrigin, PartitionOffsets

IN, RULES = SystemStream("kafka", "in"), SystemStream("kafka", "rules")
TASKS = [TaskName("Partition 0"), TaskName("Partition 1")]


def ssp(partition: int, stream: SystemStream = IN) -> SystemStreamPartition:
    return SystemStreamPartition(stream.system, stream.stream, partition)


def held(oldest: int, upcoming: int) -> PartitionOffsets:
    if oldest == upcoming:
        return PartitionOffsets(None, None, str(upcoming))
    return PartitionOffsets(str(oldest), str(upcoming - 1), str(upcoming))


def lag(
    checkpoints: dict[TaskName, dict[SystemStreamPartition, str]],
    partitions: Mapping[int, PartitionOffsets | None],
    **config: str,
) -> JobLag:
    assigned = {task: (ssp(i),) for i, task in enumerate(TASKS)}
    settings = {"task.inputs": "kafka.in", **{key.replace("_", "."): value for key, value in config.items()}}
    return measure_lag(Settings.of(settings), assigned, checkpoints, {IN: partitions})


def test_what_lies_between_checkpoint_and_end_is_left() -> None:
    found = lag({TASKS[0]: {ssp(0): "4"}, TASKS[1]: {ssp(1): "9"}}, {0: held(0, 8), 1: held(0, 10)})
    assert found.by_task == {"Partition 0": 3, "Partition 1": 0}
    assert found.by_ssp == {ssp(0): 3, ssp(1): 0}
    assert found.total == 3


def test_what_retention_removed_is_not_left() -> None:
    assert lag({TASKS[0]: {ssp(0): "4"}}, {0: held(100, 108)}).by_task == {"Partition 0": 8}


def test_an_empty_partition_that_was_looked_at_has_nothing_left() -> None:
    assert lag({TASKS[0]: {ssp(0): "-1"}}, {0: held(0, 0)}).total == 0


@pytest.mark.parametrize(("default", "left"), [("oldest", 8), ("newest", 1), ("upcoming", 0)])
def test_without_a_checkpoint_the_task_would_start_at_the_default_offset(default: str, left: int) -> None:
    found = lag({}, {0: held(2, 10)}, systems_kafka_samza_offset_default=default)
    assert found.total == left


def test_a_partition_that_no_task_reads_yet_counts() -> None:
    found = lag({}, {2: held(0, 5)}, systems_kafka_samza_offset_default="oldest")
    assert (found.total, found.by_task, found.rows[0].task) == (5, {}, None)


def test_a_partition_that_was_added_counts_whole_as_it_will_be_read() -> None:
    added = PartitionOffsets("0", "4", "5", KeyOrigin(0, "10"))
    checkpoint = {TASKS[0]: {ssp(0): "9"}}
    found = lag(checkpoint, {0: held(0, 10), 2: added})
    assert [(row.task, row.records) for row in found.rows] == [(TASKS[0], 0), (None, 5)]
    expanded = measure_lag(
        Settings.of({"task.inputs": "kafka.in"}),
        {TASKS[0]: (ssp(0), ssp(2))},
        checkpoint,
        {IN: {0: held(0, 10), 2: added}},
    )
    assert expanded.by_task == {TASKS[0]: 5}


def test_a_broadcast_ssp_is_left_to_the_slowest_of_its_tasks_and_counted_once() -> None:
    rules = ssp(0, RULES)
    found = measure_lag(
        Settings.of({"task.inputs": "kafka.in", "task.broadcast.inputs": "kafka.rules#0"}),
        {task: (ssp(i), rules) for i, task in enumerate(TASKS)},
        {TASKS[0]: {ssp(0): "9", rules: "1"}, TASKS[1]: {ssp(1): "9", rules: "3"}},
        {IN: {0: held(0, 10), 1: held(0, 10)}, RULES: {0: held(0, 5), 1: held(0, 100)}},
    )
    assert found.by_task == {"Partition 0": 3, "Partition 1": 1}
    assert (found.by_ssp[rules], found.total) == (3, 3)


def test_offsets_that_are_no_numbers_and_missing_streams_leave_the_total_unknown() -> None:
    strange = PartitionOffsets("a1", "a2", "a3")
    found = lag({TASKS[0]: {ssp(0): "a1"}}, {0: strange})
    assert (found.rows[0].records, found.total) == (None, None)
    gone = measure_lag(Settings.of({"task.inputs": "kafka.in"}), {}, {}, {})
    assert (gone.missing, gone.total) == ((IN,), None)


def test_an_unreachable_partition_leaves_the_total_unknown_and_is_named() -> None:
    found = lag({TASKS[0]: {ssp(0): "4"}, TASKS[1]: {ssp(1): "9"}}, {0: held(0, 8), 1: None})
    assert (found.unreachable, found.total, found.by_task) == ([ssp(1)], None, {"Partition 0": 3})


def test_as_a_document_it_names_system_stream_and_partition_apart() -> None:
    document = lag({TASKS[0]: {ssp(0): "4"}}, {0: held(0, 8)}).document()
    assert document == {
        "total": 3,
        "tasks": {"Partition 0": 3},
        "partitions": [
            {
                "task": "Partition 0",
                "system": "kafka",
                "stream": "in",
                "partition": 0,
                "checkpointed": "4",
                "upcoming": "8",
                "lag": 3,
            }
        ],
        "missing": [],
    }
