"""Startpoints of one task or all, set, shown and deleted from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.rewound_job import (
    FIRST,
    JOB,
    SECOND,
    Output,
    grete_json,
    new_outputs,
    refused,
    three_batches,
)

from grete.cli.main import main
from grete.operations import open_job
from grete.testing.job import JobUnderTest


@pytest.fixture
def job(home: Path) -> Iterator[JobUnderTest]:
    with three_batches(home) as made:
        yield made


def test_a_startpoint_is_set_for_every_task_of_an_input_or_for_one(job: JobUnderTest, capsys: Output) -> None:
    document = grete_json(capsys, "startpoint", "set", "--ssp", FIRST, "--to", "offset:3")
    assert document == {"ssp": FIRST, "task": None, "to": "offset:3", "tasks": ["Partition 0"]}
    grete_json(capsys, "startpoint", "set", "--ssp", SECOND, "--task", "Partition 1", "--to", "oldest")
    assert main(["startpoint", "show", "--job", "test"]) == 0
    assert "handed over" in capsys.readouterr().out
    assert new_outputs(job) == [("a", 4), ("x", 3), ("x", 4)]
    events = [row["event"] for row in grete_json(capsys, "history")]
    assert events.count("startpoint") == 2


def test_a_startpoint_of_a_running_job_waits_under_samzas_key_and_expires(
    job: JobUnderTest, capsys: Output
) -> None:
    with open_job(JOB) as handle, handle.election.stopped(""):
        assert "--live" in refused(capsys, 4, "startpoint", "set", "--ssp", FIRST, "--to", "oldest")
        grete_json(capsys, "startpoint", "set", "--ssp", FIRST, "--to", "oldest", "--live")
        grete_json(
            capsys, "startpoint", "set", "--ssp", FIRST, "--task", "Partition 0", "--to", "upcoming", "--live"
        )
        assert sorted(handle.stream.raw("samza-startpoint-v1")) == [FIRST, f"{FIRST}.Partition 0"]
    rows = grete_json(capsys, "startpoint", "show")
    assert [(row["task"], row["status"]) for row in rows] == [(None, "waiting"), ("Partition 0", "waiting")]
    assert all(row["expires_ms"] - row["created_ms"] == 12 * 3600 * 1000 for row in rows)
    assert rows[0]["created_ms"] < rows[1]["created_ms"], "the newer one wins"
    assert grete_json(capsys, "startpoint", "delete", "--all") == {"deleted": 2}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("set", "--ssp", "local.other.0", "--to", "oldest"), 1, "no task of job test reads local.other.0"),
        (
            ("set", "--ssp", FIRST, "--task", "Partition 1", "--to", "oldest"),
            1,
            f"task 'Partition 1' does not read {FIRST}; it reads {SECOND}",
        ),
        (
            ("set", "--ssp", FIRST, "--task", "Partition_1", "--to", "oldest"),
            1,
            "job test has no task 'Partition_1'; did you mean Partition 1?",
        ),
        (
            ("set", "--ssp", FIRST, "--task", "batman", "--to", "oldest"),
            1,
            "job test has no task 'batman'; it has Partition 0, Partition 1",
        ),
        (("set", "--ssp", FIRST, "--to", "batch:1"), 2, "has no batches"),
        (("delete",), 2, "say which"),
        (("delete", "--all", "--ssp", FIRST), 2, "say which"),
    ],
)
def test_startpoints_that_mean_nothing_are_refused(
    job: JobUnderTest, capsys: Output, words: tuple[str, ...], code: int, message: str
) -> None:
    assert message in refused(capsys, code, "startpoint", *words)
