"""The records of a task's commit in the checkpoint log."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest

from grete.checkpoint.task_commit import TaskCommit, commit_entries, last_commits, read_commits
from grete.keyed_log.base import Entry, Record
from grete.keyed_log.memory import MemoryKeyedLog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.testing.clock import ManualClock

TASK = TaskName("Partition 0")
SSP = SystemStreamPartition("kafka", "in", 0)
COMMIT = TaskCommit({SSP: "7"}, "lineage-1", 3, "token", {"counts": 12})


def records(entries: Iterable[Entry]) -> list[Record]:
    return [Record(offset, entry.key, entry.value, 0) for offset, entry in enumerate(entries)]


def test_a_commit_comes_back_and_all_its_keys_have_the_shape_that_samza_reads() -> None:
    written = records(commit_entries({TASK: COMMIT}, grouper="g"))
    assert read_commits(written) == {TASK: COMMIT}
    keys = [orjson.loads(record.key) for record in written]
    assert [key.pop("type") for key in keys] == ["checkpoint", "checkpoint-v2", "grete-commit"]
    assert keys == [{"systemstreampartition-grouper-factory": "g", "taskName": TASK}] * 3


@pytest.mark.parametrize(
    ("versions", "kinds"),
    [
        ((1, 2), ["checkpoint", "grete-commit"]),
        ((1,), ["checkpoint", "grete-commit"]),
        ((2,), ["checkpoint-v2", "grete-commit"]),
    ],
)
def test_of_a_dotted_stream_there_is_no_checkpoint_that_samza_cannot_read(
    versions: tuple[int, ...], kinds: list[str]
) -> None:
    commit = TaskCommit({SSP: "7", SystemStreamPartition("kafka", "in.v2", 0): "8"}, "lineage-1", 3, "token")
    written = records(commit_entries({TASK: commit}, grouper="g", write_versions=versions))
    assert [orjson.loads(record.key)["type"] for record in written] == kinds
    if 1 in versions:
        assert read_commits(written) == {TASK: commit}


def test_a_commit_says_whether_spark_has_offsets_of_its_own() -> None:
    commit = replace(COMMIT, has_foreign_sources=True)
    written = commit_entries({TASK: commit}, grouper="g")
    assert read_commits(records(written)) == {TASK: commit}
    of_others = commit_entries({TASK: COMMIT}, grouper="g")[-1].value
    assert b"foreign" not in (of_others or b""), "every batch writes it"


def test_a_companion_in_the_old_shape_is_read() -> None:
    first, second, companion = commit_entries({TASK: COMMIT}, grouper="g")
    old = Entry(orjson.dumps(["grete-commit", TASK]), companion.value)
    assert read_commits(records([first, second, old])) == {TASK: COMMIT}
    assert read_commits(records([first, second, old, Entry(old.key, None)])) == {TASK: TaskCommit({SSP: "7"})}


def test_a_checkpoint_that_a_tool_has_moved_wins_over_the_companion() -> None:
    moved = commit_entries({TASK: TaskCommit({SSP: "5"})}, grouper="g")[:1]
    assert read_commits(records([*commit_entries({TASK: COMMIT}, grouper="g"), *moved])) == {
        TASK: TaskCommit({SSP: "5"})
    }


def test_strange_records_do_not_keep_a_job_from_starting() -> None:
    strange = [
        Entry(b"[1", b""),
        Entry(b'["grete-commit", 3]', b""),
        Entry(b'["other", "t"]', b"{}"),
        Entry(b"\xff", b""),
    ]
    assert read_commits(records([*strange, *commit_entries({TASK: COMMIT}, grouper="g")])) == {TASK: COMMIT}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_last_in_a_log_is_found_without_decoding_what_it_shadows(seed: int) -> None:
    """Whatever else is there: commits of two groupers, a tool's, deletions, records that cannot be read."""
    chance, log = random.Random(seed), MemoryKeyedLog(ManualClock())
    tasks = [TaskName(f"Partition {number}") for number in range(3)]
    ends = [-1]
    for number in range(40):
        commit = TaskCommit({SSP: str(number)}, "lineage", number, "token", {"counts": number})
        written = commit_entries({chance.choice(tasks): commit}, grouper=chance.choice(("g", "h")))
        some = [entry for entry in written if chance.random() < 0.8]
        if chance.random() < 0.2:
            some = [Entry(entry.key, chance.choice((None, b"[]", b"{", b"\xff"))) for entry in some]
        if chance.random() < 0.1:
            some.append(Entry(b"foreign", b"x"))
        if some:
            ends.append(log.append(some))
    for after in (-1, chance.choice(ends)):
        assert last_commits(log, after) == read_commits(log.read(after))
