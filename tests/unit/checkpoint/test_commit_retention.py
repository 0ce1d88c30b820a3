"""The checkpoint log of an embedded system: what is kept of it, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.commit_history import commit_history
from grete.checkpoint.task_commit import TaskCommit, commit_entries, read_commits
from grete.container.housekeeping import CommitRetention
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.sqlite_file import open_file
from grete.testing.clock import ManualClock

TASKS = [TaskName(f"Partition {partition}") for partition in range(3)]
RECORDS = 3 * len(TASKS)
"""A commit of each task: as Samza's two versions, and ours."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteKeyedLog]:
    with closing(SqliteKeyedLog(open_file(tmp_path / "log.db"), "log", clock, owns_file=True)) as log:
        yield log


def commit(log: SqliteKeyedLog, batch: int) -> None:
    commits = {
        task: TaskCommit({SystemStreamPartition("local", "in", i): str(batch)}, "lineage", batch)
        for i, task in enumerate(TASKS)
    }
    log.append(commit_entries(commits, grouper="g"))


def known_batches(log: SqliteKeyedLog) -> list[list[int]]:
    return [[one.commit.batch_id for one in known] for _, known in sorted(commit_history(log.read()).items())]


def test_the_last_commits_stay_and_the_log_no_longer_grows(log: SqliteKeyedLog, clock: ManualClock) -> None:
    retention = CommitRetention(log, 0, clock, kept=20 * RECORDS, due=5 * RECORDS)
    for batch in range(200):
        commit(log, batch)
        retention.step()
        assert len(list(log.read())) <= 26 * RECORDS
        clock.advance(1)
    assert all(set(range(181, 200)) <= set(batches) for batches in known_batches(log))
    assert {commit.batch_id for commit in read_commits(log.read()).values()} == {199}


def test_of_a_hundred_commits_a_second_some_stay_within_the_lag(
    log: SqliteKeyedLog, clock: ManualClock
) -> None:
    """All of them would be millions in four hours, and every start reads them."""
    retention = CommitRetention(log, 3_600_000, clock, kept=2 * RECORDS, due=20 * RECORDS, apart_ms=1_000)
    for batch in range(600):
        commit(log, batch)
        retention.step()
        clock.advance(0.01)
    assert len(list(log.read())) < 100 * RECORDS
    for batches in known_batches(log):
        assert all(set(range(batch, batch + 100)) & set(batches) for batch in range(0, 600, 100)), (
            "each second"
        )
    assert {commit.batch_id for commit in read_commits(log.read()).values()} == {599}


def test_commits_that_are_apart_stay_within_the_lag_of_the_stores(
    log: SqliteKeyedLog, clock: ManualClock
) -> None:
    retention = CommitRetention(log, 60_000, clock, kept=2 * RECORDS, due=RECORDS)
    for batch in range(200):
        commit(log, batch)
        retention.step()
        assert known_batches(log)[0][-60:] == list(range(max(0, batch - 59), batch + 1))
        clock.advance(1)
    assert len(known_batches(log)[0]) < 70


def test_a_task_that_rests_keeps_its_last_commit(log: SqliteKeyedLog, clock: ManualClock) -> None:
    retention = CommitRetention(log, 0, clock, kept=RECORDS, due=RECORDS)
    commit(log, 0)
    for batch in range(1, 50):
        resting = TaskCommit({SystemStreamPartition("local", "in", 0): str(batch)}, "lineage", batch)
        log.append(commit_entries({TASKS[0]: resting}, grouper="g"))
        retention.step()
    assert {task: commit.batch_id for task, commit in read_commits(log.read()).items()} == {
        TASKS[0]: 49,
        TASKS[1]: 0,
        TASKS[2]: 0,
    }


def test_a_long_log_is_gone_through_a_piece_at_a_time(log: SqliteKeyedLog, clock: ManualClock) -> None:
    for batch in range(100):
        commit(log, batch)
    retention = CommitRetention(log, 0, clock, kept=10 * RECORDS, due=RECORDS, at_once=20 * RECORDS)
    dropped = [retention.step() for _ in range(7)]
    assert max(dropped) <= 20 * RECORDS
    assert len(list(log.read())) <= 12 * RECORDS
    assert dropped[-1] == 0
