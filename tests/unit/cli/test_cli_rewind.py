"""Rewinding from the command line: what it says it would do, what it refuses, and what the job does then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.rewound_job import (
    FIRST,
    JOB,
    SECOND,
    Output,
    batch,
    grete_json,
    job_in,
    new_outputs,
    refused,
    rewind,
    three_batches,
)

from grete.cli.main import main
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.testing.job import JobUnderTest


@pytest.fixture
def job(home: Path) -> Iterator[JobUnderTest]:
    with three_batches(home) as made:
        yield made


_REWIND = ("checkpoint", "rewind", "--to", "oldest")
EVERYTHING = {FIRST: ("4", "0", 4, 0), SECOND: ("2", "0", 2, 0)}


def test_without_execute_a_rewind_says_what_it_would_do_and_writes_nothing(
    job: JobUnderTest, capsys: Output
) -> None:
    assert rewind(capsys, "oldest") == EVERYTHING
    assert main(["checkpoint", "rewind", "--to", "oldest", "--job", "test"]) == 0
    out = capsys.readouterr().out
    assert "nothing was written" in out
    assert "Partition 0" in out
    assert grete_json(capsys, "startpoint", "show") == []
    assert new_outputs(job) == []


def test_a_rewind_is_applied_at_the_next_start_and_recorded_with_its_reason(
    job: JobUnderTest, capsys: Output
) -> None:
    rewind(capsys, "oldest", "--execute", "--reason", "wrong rates")
    assert new_outputs(job) == [("a", 4), ("a", 5), ("a", 6), ("b", 2), ("x", 3), ("x", 4)]
    assert new_outputs(job) == []
    (row,) = [row for row in grete_json(capsys, "history") if row["event"] == "rewind"]
    assert (row["to"], row["state"], row["reason"], row["reprocessed"]) == (
        "oldest",
        "keep",
        "wrong rates",
        "6",
    )


@pytest.mark.parametrize(
    ("state", "outputs"),
    [
        ("keep", [("a", 4), ("b", 2), ("x", 3)]),
        ("restore", [("a", 3), ("b", 1), ("x", 2)]),
        ("discard", [("a", 1), ("b", 1), ("x", 1)]),
    ],
)
def test_to_a_batch_with_every_choice_of_state(
    job: JobUnderTest, capsys: Output, state: str, outputs: list[tuple[str, int]]
) -> None:
    assert rewind(capsys, "batch:0", "--state", state, "--execute") == {
        FIRST: ("4", "2", 2, 0),
        SECOND: ("2", "1", 1, 0),
    }
    assert new_outputs(job) == outputs


@pytest.mark.parametrize(
    ("state", "outputs"),
    [
        ("keep", [("a", 4), ("b", 2), ("n", 2), ("x", 3)]),
        ("restore", [("a", 3), ("b", 1), ("n", 1), ("x", 2)]),
        ("discard", [("a", 1), ("b", 1), ("n", 1), ("x", 1)]),
    ],
)
def test_an_input_that_came_after_the_batch_is_read_from_its_first_record(
    job: JobUnderTest, capsys: Output, state: str, outputs: list[tuple[str, int]]
) -> None:
    job.restart(config={"task.inputs": "local.in,local.more"})
    job.send("local.more", 0, key="n", partition=0)
    job.run()
    job.stop()
    words = ("checkpoint", "rewind", "--to", "batch:0", "--state", state)
    assert main([*words, "--job", "test"]) == 0
    assert "nothing was read of local.more.0" in capsys.readouterr().out
    document = grete_json(capsys, *words, "--execute")
    assert (document["unread"], document["reprocessed"]) == (["local.more.0"], 4)
    assert new_outputs(job) == outputs


def test_restored_to_the_oldest_offset_the_stores_are_empty(job: JobUnderTest, capsys: Output) -> None:
    rewind(capsys, "oldest", "--state", "restore", "--execute")
    assert new_outputs(job) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("x", 1), ("x", 2)]


def test_a_rewind_can_be_for_one_task_or_one_input(job: JobUnderTest, capsys: Output) -> None:
    assert rewind(capsys, "oldest", "--task", "Partition 1") == {SECOND: ("2", "0", 2, 0)}
    assert rewind(capsys, "oldest", "--ssp", "local.in") == EVERYTHING
    beyond = refused(capsys, 1, "checkpoint", "rewind", "--to", "offset:999", "--ssp", FIRST)
    assert "asks for offset 999" in beyond
    assert "Nothing was written: ask for another offset" in beyond
    assert "local.out is no input of Partition 0" in refused(capsys, 1, *_REWIND, "--ssp", "local.out")
    assert "a stream is written system.stream" in refused(capsys, 2, *_REWIND, "--ssp", "in")
    assert rewind(capsys, "offset:3", "--ssp", FIRST, "--execute") == {FIRST: ("4", "3", 1, 0)}
    assert new_outputs(job) == [("a", 4)]


def test_to_upcoming_and_to_a_time_show_what_is_skipped_and_what_comes_again(
    job: JobUnderTest, capsys: Output
) -> None:
    at_ms = job.clock.wall_ms() - 1000
    job.send("local.in", 0, key="z", partition=0)
    assert rewind(capsys, "upcoming")[FIRST] == ("4", "5", 0, 1)
    assert rewind(capsys, f"timestamp:{at_ms}") == {FIRST: ("4", "3", 1, 0), SECOND: ("2", "1", 1, 0)}


def test_an_input_of_which_nothing_was_processed_stands_at_its_default(home: Path, capsys: Output) -> None:
    with job_in(home) as made:
        batch(made, "a", "")
        made.send("local.in", 0, key="z", partition=1)
        assert rewind(capsys, "upcoming") == {FIRST: ("1", "1", 0, 0), SECOND: ("0", "1", 0, 1)}
        assert rewind(capsys, "batch:0") == {FIRST: ("1", "1", 0, 0)}, (
            "where it has not begun there is no way back"
        )


def test_a_rewind_that_was_not_applied_yet_can_be_taken_back(job: JobUnderTest, capsys: Output) -> None:
    rewind(capsys, "oldest", "--execute")
    shown = grete_json(capsys, "startpoint", "show")
    assert [(row["ssp"], row["task"], row["to"], row["status"]) for row in shown] == [
        (FIRST, "Partition 0", "oldest", "handed over"),
        (SECOND, "Partition 1", "oldest", "handed over"),
    ]
    assert grete_json(capsys, "startpoint", "delete", "--ssp", SECOND, "--reason", "enough") == {"deleted": 1}
    assert new_outputs(job) == [("a", 4), ("a", 5), ("a", 6), ("b", 2)]
    assert [row["status"] for row in grete_json(capsys, "startpoint", "show")] == ["applied"]


def test_the_later_of_two_rewinds_counts(job: JobUnderTest, capsys: Output) -> None:
    rewind(capsys, "oldest", "--state", "discard", "--execute")
    rewind(capsys, "offset:1", "--execute")
    assert new_outputs(job) == [("a", 4), ("a", 5), ("b", 2), ("x", 3)]


def test_while_the_job_runs_a_rewind_needs_live(job: JobUnderTest, capsys: Output) -> None:
    with open_job(JOB) as handle, handle.election.stopped(""):  # stands for a coordinator: it leads
        error = refused(capsys, 4, "checkpoint", "rewind", "--to", "oldest", "--execute")
        assert f"job {JOB.shown} is held by" in error
        assert "--live" in error
        assert rewind(capsys, "oldest") == EVERYTHING, "looking is allowed"
        rewind(capsys, "oldest", "--execute", "--live", "--state", "discard")
    assert [row["status"] for row in grete_json(capsys, "startpoint", "show")] == ["waiting", "waiting"]
    assert new_outputs(job) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("x", 1), ("x", 2)]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--to", "offset:9"), 1, "from 4 to before 9 are not there"),
        (("--to", "newest"), 2, "write oldest, upcoming"),
        (("--to", "batch:7"), 1, "no batch 7: its last is 2"),
        (("--to", "batch:zz/0"), 1, "no known lineage begins with 'zz'"),
        (("--to", "oldest", "--task", "Partition 9"), 1, "no task 'Partition 9'; it has Partition 0"),
        (("--to", "oldest", "--ssp", "local.other.0"), 1, "local.other.0 is no input"),
        (("--to", "oldest", "--ssp", "nonsense"), 2, "--ssp 'nonsense'"),
        (
            ("--to", "offset:1", "--ssp", FIRST, "--state", "restore"),
            1,
            "no known batch ended at local.in.0 offset 1",
        ),
        (("--to", "offset:3", "--task", "Partition 0", "--state", "restore"), 0, ""),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    job: JobUnderTest, capsys: Output, words: tuple[str, ...], code: int, message: str
) -> None:
    assert main(["checkpoint", "rewind", *words, "--execute", "--job", "test"]) == code
    assert message in capsys.readouterr().err
    assert (grete_json(capsys, "startpoint", "show") == []) == (code != 0)


def test_a_point_without_matching_state_names_the_batch_before_it(job: JobUnderTest, capsys: Output) -> None:
    at_ms = job.clock.wall_ms() - 1000
    batch(job.restart(), "cc", "")
    error = refused(
        capsys, 1, "checkpoint", "rewind", "--to", "offset:5", "--ssp", FIRST, "--state", "restore"
    )
    lineage = grete_json(capsys, "checkpoint", "show")["Partition 0"]["lineage"]
    before = {row["lineage"] for row in grete_json(capsys, "checkpoint", "history") if row["batch_id"] == 2}
    assert lineage not in before
    assert f"the last one before is --to batch:{before.pop()[:8]}/2" in error
    assert at_ms > 0


def test_a_pipeline_is_rewound_whole_or_in_part_and_only_without_its_state(
    job: JobUnderTest, capsys: Output
) -> None:
    with open_job(JOB) as handle:
        set_config(handle, {"app.class": "x:X", "task.class": None}, reason="", force=True)
    command = ("checkpoint", "rewind", "--to", "oldest")
    assert "--state discard" in refused(capsys, 1, *command)
    assert "cannot be restored" in refused(capsys, 1, *command, "--state", "restore")
    assert rewind(capsys, "oldest", "--state", "discard") == EVERYTHING
    assert rewind(capsys, "oldest", "--state", "discard", "--ssp", FIRST) == {FIRST: EVERYTHING[FIRST]}


@pytest.mark.parametrize(
    ("kept", "said"),
    [("", None), ("Aggregate [key]", "(Aggregate [key]) cannot be kept"), (None, "(its state)")],
)
def test_a_pipeline_that_keeps_nothing_in_spark_is_rewound_without_a_word_of_state(
    job: JobUnderTest, capsys: Output, kept: str | None, said: str | None
) -> None:
    """Its lineage, on this machine, says what it keeps."""
    with open_job(JOB) as handle:
        set_config(handle, {"app.class": "x:X", "task.class": None}, reason="", force=True)
        place = handle.settings.job.lineage_place(JOB, handle.home)
        assert isinstance(place, Path)
        for task, commit in handle.checkpoints.read().items():
            folder = place / f"container-{handle.assignments()[task]}" / "lineages"
            folder.mkdir(parents=True, exist_ok=True)
            lineage = {"id": commit.lineage, "starting_offsets": {}, "plan": "", "sources": [], "kept": kept}
            (folder / "current.json").write_text(json.dumps(lineage))
    if said is None:
        assert rewind(capsys, "oldest") == EVERYTHING
    else:
        assert said in refused(capsys, 1, "checkpoint", "rewind", "--to", "oldest")


def test_the_batches_that_can_be_rewound_to_are_listed(job: JobUnderTest, capsys: Output) -> None:
    rows = grete_json(capsys, "checkpoint", "history")
    assert [(row["batch_id"], row["task"], row["offsets"]) for row in rows] == [
        (0, "Partition 0", {FIRST: "1"}),
        (0, "Partition 1", {SECOND: "0"}),
        (1, "Partition 0", {FIRST: "2"}),
        (2, "Partition 0", {FIRST: "3"}),
        (2, "Partition 1", {SECOND: "1"}),
    ]
    assert len(grete_json(capsys, "checkpoint", "history", "-n", "1")) == 1
    assert main(["checkpoint", "history", "--job", "test", "--task", "Partition 1"]) == 0
    assert f"{rows[0]['lineage'][:8]}/2" in capsys.readouterr().out


# --- overwrite ---
