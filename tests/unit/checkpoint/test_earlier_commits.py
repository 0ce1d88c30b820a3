"""What a share finds in the checkpoint log when it begins: its container's commits, among those of all others."""

from __future__ import annotations

from typing import cast

import pytest

from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.config.settings import Settings
from grete.errors import CheckpointsMoved
from grete.keyed_log.base import Record
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition, TaskName
from grete.tasks.commit.earlier import EarlierCommits
from grete.tasks.spec import CommitSpec, RunnerSpec, TaskSpec

INPUTS = tuple(SystemStreamPartition("local", "in", number) for number in range(2))
MINE, OTHERS = TaskName("Partition 0"), TaskName("Partition 1")
LINEAGE = "mine"


def commits() -> EarlierCommits:
    """Of a container with one of two tasks."""
    commit = CommitSpec(Fence("container", 1), Fence("epoch/container", 1), "checkpoints", "grouper", -1)
    spec = RunnerSpec(
        incarnation="here",
        job="job-1",
        settings=Settings(),
        task_class="tasks:Task",
        application_path="",
        ssps=INPUTS[:1],
        tasks=(TaskSpec(0, MINE, (0,), 0),),
        stores=(),
        store_directory="",
        default_system="local",
        home="",
        dead_letter_stream=None,
        commit=commit,
    )
    return EarlierCommits(spec, 0, LINEAGE)


def log(task: TaskName, *batches: int, lineage: str = LINEAGE) -> list[Record]:
    """A task's records of these batches."""
    partition = INPUTS[0 if task == MINE else 1]
    entries = [
        entry
        for batch in batches
        for entry in commit_entries(
            {task: TaskCommit({partition: str(batch)}, lineage, batch, f"token {batch}")}, grouper="grouper"
        )
    ]
    return [Record(offset, entry.key, entry.value, 0) for offset, entry in enumerate(entries)]


class Unread:
    """A record whose value nobody decodes."""

    def __init__(self, record: Record) -> None:
        self.offset, self.key = record.offset, record.key

    @property
    def value(self) -> bytes | None:
        raise AssertionError(f"the value of {self.key!r} was read")


def unread(records: list[Record]) -> list[Record]:
    return [cast(Record, Unread(record)) for record in records]


def test_the_last_commit_of_each_task_of_its_own_is_found() -> None:
    [report] = commits().in_records(log(MINE, 3, 4)).values()
    assert (report.task, report.batch_id, report.token, report.last_offsets) == (0, 4, "token 4", {0: 4})


def test_commits_of_other_containers_and_samzas_checkpoints_are_not_decoded() -> None:
    """Each share of a container reads what all containers have committed since: most of it is others'."""
    assert commits().in_records(unread(log(OTHERS, 1, 2))) == {}
    assert commits().in_records(unread([one for one in log(MINE, 1) if b"grete-commit" not in one.key])) == {}
    damaged = Record(0, log(MINE, 1)[-1].key, b"{", 0)
    assert commits().in_records([damaged, Record(1, b"of another program", b"", 0)]) == {}


def test_a_commit_of_another_run_of_the_container_is_no_earlier_one_of_this() -> None:
    with pytest.raises(CheckpointsMoved, match="has committed Partition 0 at offset 2 of checkpoints"):
        commits().in_records(log(MINE, 3, lineage="another"))
    assert commits().in_records(log(OTHERS, 3, lineage="another")) == {}
