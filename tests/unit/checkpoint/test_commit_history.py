"""Which batches the checkpoint log knows, before and after it was compacted."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grete.checkpoint.applied_startpoints import Applied, applied_entry, read_applied
from grete.checkpoint.commit_history import (
    commit_history,
    commit_that_ended_at,
    commits_after_batch,
    find_lineage,
    lineage_of,
)
from grete.checkpoint.task_commit import STORES_MOVED, TaskCommit, commit_entries, read_commits
from grete.errors import JobError
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import StateChoice
from grete.testing.clock import ManualClock

A, B = SystemStreamPartition("local", "in", 0), SystemStreamPartition("local", "in", 1)
T0, T1 = TaskName("t0"), TaskName("t1")
SSP = {T0: A, T1: B}


@pytest.fixture
def log() -> MemoryKeyedLog:
    return MemoryKeyedLog(ManualClock())


def commit(log: MemoryKeyedLog, lineage: str, batch_id: int, **last: int) -> None:
    """One batch's commit of the tasks that had records in it."""
    commits = {
        TaskName(task): TaskCommit({SSP[TaskName(task)]: str(offset)}, lineage, batch_id)
        for task, offset in last.items()
    }
    log.append(commit_entries(commits, grouper="g"))


def after(log: MemoryKeyedLog, batch_id: int, lineage: str = "first") -> Mapping[str, str]:
    found = commits_after_batch(commit_history(log.read()), (T0, T1), batch_id, lineage)
    return {task: one.offsets[SSP[task]] for task, one in found.items()}


def fill(log: MemoryKeyedLog) -> None:
    commit(log, "first", 0, t0=9, t1=4)
    commit(log, "first", 1, t0=19)
    commit(log, "first", 2, t0=29, t1=8)
    commit(log, "second", 0, t1=9)


def test_after_a_batch_each_task_stands_where_it_had_committed_last(log: MemoryKeyedLog) -> None:
    fill(log)
    assert after(log, 0) == {"t0": "9", "t1": "4"}
    assert after(log, 1) == {"t0": "19", "t1": "4"}
    assert after(log, 2) == {"t0": "29", "t1": "8"}
    assert after(log, 0, "second") == {"t0": "29", "t1": "9"}


def test_a_checkpoint_that_was_moved_between_two_lineages_counts_for_the_later_one_only(
    log: MemoryKeyedLog,
) -> None:
    fill(log)
    log.append(commit_entries({T0: TaskCommit({A: "0"})}, grouper="g"))
    commit(log, "third", 0, t1=11)
    assert after(log, 0, "third") == {"t0": "0", "t1": "11"}
    assert after(log, 2) == {"t0": "29", "t1": "8"}


def test_a_task_whose_stores_went_elsewhere_has_no_history_before(log: MemoryKeyedLog) -> None:
    """Positions of its changelogs were those of other partitions, which another task may have by now."""
    fill(log)
    moved = TaskCommit({A: "29"}, token=STORES_MOVED)
    log.append(commit_entries({T0: moved}, grouper="g"))
    commit(log, "third", 0, t0=35)
    history = commit_history(log.read())
    assert [one.commit.offsets[A] for one in history[T0]] == ["29", "35"]
    assert [one.commit.offsets[B] for one in history[T1]] == ["4", "8", "9"]


def test_what_compaction_has_removed_is_not_known_any_more_and_the_rest_is_exact(log: MemoryKeyedLog) -> None:
    fill(log)
    log.compact()
    assert after(log, 0, "second") == {"t0": "29", "t1": "9"}
    commit(log, "second", 1, t0=39)
    commit(log, "second", 2, t0=49, t1=12)
    assert after(log, 1, "second") == {"t0": "39", "t1": "9"}
    with pytest.raises(JobError, match="'t1': where it stood after batch 2 of lineage first is not known"):
        after(log, 2)


def test_a_batch_that_never_was_is_refused_with_the_last_one(log: MemoryKeyedLog) -> None:
    fill(log)
    with pytest.raises(JobError, match="no batch 3: its last is 2"):
        after(log, 3)
    with pytest.raises(JobError, match="it has none"):
        after(log, 0, "another")


def test_a_task_that_has_never_committed_is_left_out(log: MemoryKeyedLog) -> None:
    commit(log, "first", 0, t0=9)
    commit(log, "first", 1, t0=19)
    assert after(log, 0) == {"t0": "9"}
    commit(log, "first", 2, t1=4)
    with pytest.raises(JobError, match=r"'t1': .* its first known commit is batch 2 of lineage first"):
        after(log, 0)


def test_a_lineage_is_named_by_its_first_characters(log: MemoryKeyedLog) -> None:
    fill(log)
    history = commit_history(log.read())
    assert find_lineage(history, "se") == "second"
    with pytest.raises(JobError, match="known are: first, second"):
        find_lineage(history, "x")
    with pytest.raises(JobError, match="more than one"):
        find_lineage(history, "")
    assert lineage_of(history, [T0, T1], 0) == "second"
    assert lineage_of(history, [T0], 0) == "first"
    with pytest.raises(JobError, match="no batch"):
        lineage_of(history, [TaskName("other")], 0)


def test_a_matching_point_is_the_last_commit_that_ended_there(log: MemoryKeyedLog) -> None:
    fill(log)
    commit(log, "second", 1, t0=19)
    known = commit_history(log.read())[T0]
    found = commit_that_ended_at(known, {A: 20})
    assert found is not None
    assert (found.lineage, found.batch_id) == ("second", 1)
    assert commit_that_ended_at(known, {A: 21}) is None
    assert commit_that_ended_at(known, {A: 20, B: 5}) is None
    assert commit_that_ended_at(known, {A: 20, B: 0}) is not None, "B was not read by then"


def test_records_of_others_are_skipped(log: MemoryKeyedLog) -> None:
    fill(log)
    log.append([Entry(b'["grete-commit", "t0"]', b"{"), Entry(b"[", b"x"), Entry(b'["other", 1]', b"{}")])
    log.append([Entry(b'["grete-startpoints", "t0"]', b"[]"), Entry(b'["grete-startpoints"]', b"{}")])
    assert after(log, 2) == {"t0": "29", "t1": "8"}
    assert read_applied(log.read()) == {}


def test_what_was_applied_is_read_back_and_survives_a_checkpoint_tool(log: MemoryKeyedLog) -> None:
    applied = Applied({A: 123}, StateChoice.DISCARD)
    log.append([applied_entry(T0, applied, grouper="g")])
    fill(log)
    log.append(commit_entries({T0: TaskCommit({A: "3"})}, grouper="g"))
    log.compact()
    assert read_applied(log.read()) == {T0: applied}
    assert read_commits(log.read())[T0].offsets == {A: "3"}
