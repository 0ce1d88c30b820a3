"""Which SSPs of a task were added when a stream grew, and where they start."""

from __future__ import annotations

from grete.checkpoint.offset_manager import added_partitions, starting_offsets
from grete.config.settings import Settings
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message

TASK = TaskName("Partition 0")


def ssp(partition: int, stream: str = "in") -> SystemStreamPartition:
    return SystemStreamPartition("local", stream, partition)


def test_a_second_partition_of_a_stream_was_added() -> None:
    assert added_partitions([ssp(0), ssp(2)], {ssp(0): "9"}, Settings.of({})) == {ssp(2)}


def test_another_stream_was_not_added_nor_a_task_that_never_processed_anything() -> None:
    assert added_partitions([ssp(0), ssp(0, "more")], {ssp(0): "9"}, Settings.of({})) == set()
    assert added_partitions([ssp(0), ssp(2)], {}, Settings.of({})) == set()
    assert added_partitions([ssp(0), ssp(2)], {ssp(2): "9"}, Settings.of({})) == set()


def test_broadcast_partitions_and_those_of_a_task_that_reads_all_were_there_before() -> None:
    broadcast = {"task.broadcast.inputs": "local.in#[0-2]"}
    assert added_partitions([ssp(0), ssp(2)], {ssp(0): "9"}, Settings.of(broadcast)) == set()
    package = "org.apache.samza.container.grouper.stream."
    for name in ("AllSspToSingleTaskGrouperFactory", f"{package}AllSspToSingleTaskGrouperFactory"):
        grouper = {"job.systemstreampartition.grouper.factory": name}
        assert added_partitions([ssp(0), ssp(2)], {ssp(0): "9"}, Settings.of(grouper)) == set()


def test_what_was_added_starts_at_its_oldest_and_a_reset_stream_at_its_default(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("in", 2))
    system.append("in", [Message(None, b"v", 1, partition=0)])
    system.add_partitions("in", 4)
    system.append("in", [Message(None, b"v", 1, partition=2)] * 3)
    tasks, checkpoints = {TASK: [ssp(0), ssp(2)]}, {TASK: {ssp(0): "0"}}
    found = starting_offsets(tasks, checkpoints, Settings.of({}), {"local": system})
    assert found.by_ssp == {ssp(0): "1", ssp(2): "0"}
    reset = Settings.of({"streams.in.samza.reset.offset": "true"})
    assert starting_offsets(tasks, checkpoints, reset, {"local": system}).by_ssp == {
        ssp(0): "1",
        ssp(2): "3",
    }
