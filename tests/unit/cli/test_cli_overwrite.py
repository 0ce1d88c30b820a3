"""Checkpoints are exported, compared and overwritten from files, while the job stands or runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.rewound_job import (
    CONFIG,
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

from grete.checkpoint.task_commit import read_commits
from grete.cli.main import main
from grete.config.settings import Settings
from grete.keyed_log.base import Entry
from grete.model.ids import SystemStreamPartition, TaskName
from grete.operations import open_job
from grete.testing.job import JobUnderTest
from grete.wire.checkpoint_json import encode_log_key, encode_v1


@pytest.fixture
def job(home: Path) -> Iterator[JobUnderTest]:
    with three_batches(home) as made:
        yield made


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
    grouper = "org.apache.samza.container.grouper.stream.AllSspToSingleTaskGrouperFactory"
    config = {**CONFIG, "job.systemstreampartition.grouper.factory": grouper}
    with job_in(home, config) as made:
        batch(made, "a", "x")
        made.stop()
        yield made


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
    with open_job(JOB) as handle, handle.election.stopped(""):
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


def test_before_the_first_run_samzas_checkpoint_is_shown_exported_and_overwritten_without_its_changelogs(
    job: JobUnderTest, capsys: Output, tmp_path: Path
) -> None:
    changelog = SystemStreamPartition("local", "test-1-counts-changelog", 0)
    samzas = {SystemStreamPartition.parse(FIRST): "3", changelog: "1795301207701-222492:2"}
    task = TaskName("Partition 0")
    with open_job(JOB) as handle, handle.checkpoints.system() as system:
        log = system.checkpoint_log(handle.checkpoints.log_name)
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
