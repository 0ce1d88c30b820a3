"""Last offsets of all tasks, kept up with a checkpoint log."""

from __future__ import annotations

from collections.abc import Iterator

from grete.checkpoint.latest_offsets import LatestOffsets
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import SystemClock
from grete.keyed_log.base import Entry, Record
from grete.keyed_log.memory import MemoryKeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.wire.checkpoint_json import encode_log_key

SSP = SystemStreamPartition("local", "in", 0)
TASKS = [TaskName("Partition 0"), TaskName("Partition 1")]


class CountedLog(MemoryKeyedLog):
    """Counts the records that are read."""

    read_records = 0

    def read(self, after: int = -1) -> Iterator[Record]:
        for record in super().read(after):
            self.read_records += 1
            yield record


def commit(log: MemoryKeyedLog, *tasks: TaskName, offset: int) -> None:
    commits = {task: TaskCommit({SSP: str(offset)}, "lineage", offset) for task in tasks}
    log.append(commit_entries(commits, grouper="g"))


def test_only_what_is_new_is_read() -> None:
    log = CountedLog(SystemClock())
    latest = LatestOffsets(log)
    for offset in range(10):
        commit(log, *TASKS, offset=offset)
    assert latest.read() == {task: {SSP: "9"} for task in TASKS}
    before = log.read_records
    commit(log, TASKS[0], offset=10)
    assert latest.read() == {TASKS[0]: {SSP: "10"}, TASKS[1]: {SSP: "9"}}
    assert log.read_records - before == 3
    assert latest.read() == {TASKS[0]: {SSP: "10"}, TASKS[1]: {SSP: "9"}}


def test_a_deleted_checkpoint_is_gone_and_a_damaged_one_leaves_what_was_there() -> None:
    log = MemoryKeyedLog(SystemClock())
    latest = LatestOffsets(log)
    commit(log, *TASKS, offset=1)
    keys = [encode_log_key("g", task, "checkpoint") for task in TASKS]
    log.append(
        [Entry(keys[0], None), Entry(keys[1], b"{"), Entry(b"foreign", b"x"), Entry(b'["other"]', b"x")]
    )
    assert latest.read() == {TASKS[1]: {SSP: "1"}}
