"""Rewinding from the command line: what it says it would do, what it refuses, and what the job does then.

The job runs in this process through the testing kit, over the files that the commands open.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grete.checkpoint.task_commit import read_commits
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.keyed_log.base import Entry
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.sqlite_file import open_file
from grete.testing import counting
from grete.testing.job import JobUnderTest
from grete.wire.checkpoint_json import encode_log_key, encode_v1

JOB = JobId("test")
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
}
FIRST, SECOND = "local.in.0", "local.in.1"
Output = pytest.CaptureFixture[str]


def batch(job: JobUnderTest, first: str, second: str) -> None:
    """One batch of these keys, a second apart."""
    for partition, keys in enumerate((first, second)):
        for key in keys:
            job.clock.advance(1)
            job.send("local.in", 0, key=key, partition=partition)
    assert job.run_batch() is not None


@pytest.fixture
def job(home: Path) -> Iterator[JobUnderTest]:
    """Two tasks that have run three batches: "aa" and "x", "b" alone, "a" and "x"."""
    file = open_file(home / "local" / FILE_NAME)
    log = SqliteKeyedLog(file, stream_name(JOB), SystemClock())
    with JobUnderTest(
        counting.Counter, CONFIG, partitions={"local.in": 2}, directory=home, coordinator_log=log
    ) as made:
        batch(made, "aa", "x")
        batch(made, "b", "")
        batch(made, "a", "x")
        made.stop()
        yield made
    file.close()


def grete_json(capsys: Output, *words: str) -> Any:
    assert main([*words, "--job", "test", "-o", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: Output, code: int, *words: str) -> str:
    assert main([*words, "--job", "test"]) == code
    return capsys.readouterr().err


def rewind(capsys: Output, to: str, *more: str) -> dict[str, tuple[str, str, int, int]]:
    """SSP -> (next offset now, then, processed again, skipped)."""
    document = grete_json(capsys, "checkpoint", "rewind", "--to", to, *more)
    assert document["executed"] == ("--execute" in more)
    return {
        row["ssp"]: (row["current"], row["new"], row["reprocessed"], row["skipped"])
        for row in document["ssps"]
    }


def new_outputs(job: JobUnderTest) -> list[tuple[str, int]]:
    """Records that the job sends when it is restarted and runs to the end."""
    before = sent(job)
    job.restart()
    job.run()
    return sorted((sent(job) - before).elements())


def sent(job: JobUnderTest) -> Counter[tuple[str, int]]:
    """Every output, in whatever partition."""
    return Counter((str(one.key), int(one.message)) for one in job.outputs("local.out"))


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
    file = open_file(home / "local" / FILE_NAME)
    log = SqliteKeyedLog(file, stream_name(JOB), SystemClock())
    with JobUnderTest(
        counting.Counter, CONFIG, partitions={"local.in": 2}, directory=home, coordinator_log=log
    ) as made:
        batch(made, "a", "")
        made.send("local.in", 0, key="z", partition=1)
        assert rewind(capsys, "upcoming") == {FIRST: ("1", "1", 0, 0), SECOND: ("0", "1", 0, 1)}
        assert rewind(capsys, "batch:0") == {FIRST: ("1", "1", 0, 0)}, (
            "where it has not begun there is no way back"
        )
    file.close()


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
    with open_job(JOB) as handle, handle.stopped(""):  # stands for a coordinator: it leads
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


def test_what_is_exported_is_what_overwrite_reads(job: JobUnderTest, capsys: Output, tmp_path: Path) -> None:
    file = str(tmp_path / "offsets.properties")
    assert main(["checkpoint", "export", "--job", "test", "--to", file]) == 0
    assert Path(file).read_text() == (
        "tasknames.Partition 0.systems.local.streams.in.partitions.0 = 3\n"
        "tasknames.Partition 1.systems.local.streams.in.partitions.1 = 1\n"
    )
    rewind(capsys, "oldest", "--execute")
    new_outputs(job)
    capsys.readouterr()
    assert grete_json(capsys, "checkpoint", "diff", file) == []
    Path(file).write_text(Path(file).read_text().replace("= 3", "= 2"))
    (change,) = grete_json(capsys, "checkpoint", "diff", file)
    assert change == {"task": "Partition 0", "ssp": FIRST, "current": "3", "new": "2"}
    assert grete_json(capsys, "checkpoint", "overwrite", file) == {"executed": False, "changes": [change]}
    assert grete_json(capsys, "checkpoint", "export")["Partition 0"] == {FIRST: "3"}
    words = ("checkpoint", "overwrite", "--new-offsets", f"file://{file}", "--execute", "--reason", "again")
    assert grete_json(capsys, *words) == {"executed": True, "changes": [change]}
    assert main(["checkpoint", "show", "--job", "test"]) == 0
    assert capsys.readouterr().out == Path(file).read_text()
    assert new_outputs(job) == [("a", 7)]
    (row,) = [row for row in grete_json(capsys, "history") if row["event"] == "checkpoint-overwrite"]
    assert (row["source"], row["reason"]) == ("checkpoint-tool", "again")


def offsets_file(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "new.properties"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture
def wide_job(home: Path) -> Iterator[JobUnderTest]:
    """One task that reads both partitions and has processed one record of each."""
    file = open_file(home / "local" / FILE_NAME)
    grouper = "org.apache.samza.container.grouper.stream.AllSspToSingleTaskGrouperFactory"
    config = {**CONFIG, "job.systemstreampartition.grouper.factory": grouper}
    log = SqliteKeyedLog(file, stream_name(JOB), SystemClock())
    with JobUnderTest(
        counting.Counter, config, partitions={"local.in": 2}, directory=home, coordinator_log=log
    ) as made:
        batch(made, "a", "x")
        made.stop()
        yield made
    file.close()


def test_one_ssp_is_merged_unless_the_whole_checkpoint_is_replaced(
    wide_job: JobUnderTest, capsys: Output, tmp_path: Path
) -> None:
    (task,) = wide_job.model.tasks
    file = offsets_file(tmp_path, f"tasknames.{task}.systems.local.streams.in.partitions.0=-1")
    assert grete_json(capsys, "checkpoint", "overwrite", file, "--execute")["executed"]
    assert grete_json(capsys, "checkpoint", "export") == {task: {FIRST: "-1", SECOND: "0"}}
    changes = grete_json(capsys, "checkpoint", "overwrite", file, "--replace", "--execute")["changes"]
    assert changes == [{"task": task, "ssp": SECOND, "current": "0", "new": None}]
    assert grete_json(capsys, "checkpoint", "export") == {task: {FIRST: "-1"}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tasknames.Partition 0.systems.local.streams.in.partitions.0=4", "from 4 to before 5 are not there"),
        ("tasknames.Partition 0.systems.local.streams.in.partitions.0=x", "no offset of its system"),
        ("tasknames.Partition 0.systems.local.streams.in.partitions.1=0", "does not read local.in.1"),
        ("tasknames.Partition 7.systems.local.streams.in.partitions.0=0", "has no task 'Partition 7'"),
        ("systems.local.streams.in.partitions.0=0", "names no offset"),
    ],
)
def test_offsets_that_the_job_could_not_start_from_are_not_written(
    job: JobUnderTest, capsys: Output, tmp_path: Path, line: str, message: str
) -> None:
    before = grete_json(capsys, "checkpoint", "export")
    command = ["checkpoint", "overwrite", offsets_file(tmp_path, line), "--execute", "--job", "test"]
    assert main(command) in (1, 2)
    assert message in capsys.readouterr().err
    assert grete_json(capsys, "checkpoint", "export") == before


def test_a_running_job_is_overwritten_only_with_live_and_then_by_startpoints(
    job: JobUnderTest, capsys: Output, tmp_path: Path
) -> None:
    file = offsets_file(tmp_path, "tasknames.Partition 0.systems.local.streams.in.partitions.0=2")
    command = ("checkpoint", "overwrite", file, "--execute")
    with open_job(JOB) as handle, handle.stopped(""):
        assert "--live" in refused(capsys, 4, *command)
        assert "exclude each other" in refused(capsys, 2, *command, "--live", "--replace")
        grete_json(capsys, *command, "--live")
    (row,) = grete_json(capsys, "startpoint", "show")
    assert (row["ssp"], row["to"], row["status"]) == (FIRST, "offset:3", "waiting")
    assert grete_json(capsys, "checkpoint", "export")["Partition 0"] == {FIRST: "3"}
    assert new_outputs(job) == [("a", 4)]


def test_startpoints_that_wait_are_warned_of_since_they_win(
    job: JobUnderTest, capsys: Output, tmp_path: Path
) -> None:
    rewind(capsys, "oldest", "--execute")
    file = offsets_file(tmp_path, "tasknames.Partition 0.systems.local.streams.in.partitions.0=2")
    assert main(["checkpoint", "overwrite", file, "--execute", "--job", "test"]) == 0
    assert "2 startpoints wait to be applied and win" in capsys.readouterr().err


def test_offsets_in_a_file_that_is_no_text_are_refused_with_its_name(
    job: JobUnderTest, capsys: Output, tmp_path: Path
) -> None:
    file = tmp_path / "new.properties"
    file.write_bytes(b"\xff")
    assert main(["checkpoint", "overwrite", str(file), "--job", "test"]) == 2
    assert f"{file} is not UTF-8 text" in capsys.readouterr().err


# --- startpoints ---


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
    with open_job(JOB) as handle, handle.stopped(""):
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
            "job test has no task 'Partition_1'; it has Partition 0, Partition 1",
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


def test_before_the_first_run_samzas_checkpoint_is_shown_exported_and_overwritten_without_its_changelogs(
    job: JobUnderTest, capsys: Output, tmp_path: Path
) -> None:
    changelog = SystemStreamPartition("local", "test-1-counts-changelog", 0)
    samzas = {SystemStreamPartition.parse(FIRST): "3", changelog: "1795301207701-222492:2"}
    task = TaskName("Partition 0")
    with open_job(JOB) as handle, handle.commit_system() as system:
        log = system.checkpoint_log(handle.checkpoint_log_name)
        log.append(
            [
                Entry(
                    encode_log_key(Settings.of(CONFIG).job.ssp_grouper, task, "checkpoint"), encode_v1(samzas)
                )
            ]
        )
        assert main(["checkpoint", "show", "--job", "test"]) == 0
        assert "changelog" not in capsys.readouterr().out
        (row,) = [row for row in grete_json(capsys, "job-model") if row["task"] == task]
        assert (row["inputs"], row["checkpoint"]) == ([FIRST], {FIRST: "3"})
        file = tmp_path / "offsets.properties"
        assert main(["checkpoint", "export", "--job", "test", "--to", str(file)]) == 0
        file.write_text(file.read_text().replace("= 3", "= 2"))
        assert grete_json(capsys, "checkpoint", "overwrite", str(file), "--execute")["executed"]
        moved = read_commits(log.read())[task]
    assert moved.offsets == {SystemStreamPartition.parse(FIRST): "2"}
    assert moved.changelog_marks == {changelog: "2"}  # where the store goes back to, as before
