"""Looking at a job, its streams and its history from the command line. No Spark: the job's stream is enough."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.finished_job import GROUPER, JOB, ZERO, Output, config, config_file, opened

from grete.channel.address import ChannelAddress
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import commit_entries
from grete.cli.main import main
from grete.clock import SystemClock
from grete.coordination.base import Holder
from grete.metadata.assignments import TaskAssignments
from grete.metadata.channels import read_channel, write_channel
from grete.metadata.history import History
from grete.metadata.job_index import claim_stream
from grete.metadata.job_state import (
    STATE,
    JobState,
    write_state,
)
from grete.metadata.launches import LaunchRecord, write_launch
from grete.model.fence import job_scope
from grete.model.ids import JobId, TaskName
from grete.model.messages import SET_TASK_CONTAINER, SET_TASK_PARTITION
from grete.operations.job_election import JobElection


def test_status_says_how_a_job_ended_and_how_many_records_are_behind(job: Path, capsys: Output) -> None:
    assert main(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["job"], row["state"], row["tasks"], row["behind"]) == ("orders", "finished", 2, 1)
    assert row["url"] is None


def test_status_has_the_lag_of_every_task_and_partition(job: Path, capsys: Output) -> None:
    assert main(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["lag"]["tasks"] == {"Partition 0": 1, "Partition 1": 0}
    assert [(p["partition"], p["checkpointed"], p["lag"]) for p in row["lag"]["partitions"]] == [
        (0, "2", 1),
        (1, "2", 0),
    ]


def test_status_of_one_job_shows_which_partitions_are_behind(job: Path, capsys: Output) -> None:
    assert main(["status", "--job", "orders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "",
        "task partition checkpointed upcoming behind",
        "Partition 0 local.in.0 2 4 1",
    ]


def test_a_job_recorded_as_running_without_a_process_has_died(job: Path, capsys: Output) -> None:
    with opened() as handle:
        write_state(handle.stream, JobState("running", "run-1", 1))
    assert main(["status", "--job", "orders"]) == 0
    assert "died" in capsys.readouterr().out


def test_a_job_that_ends_while_it_is_looked_at_has_not_died(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how it ended, then gives up its leadership: both fall between the look at one and at the other."""
    with opened() as handle:
        write_state(handle.stream, JobState("running", "run-1", 1))

    def ends(_election: JobElection) -> None:
        with opened() as handle:
            write_state(handle.stream, JobState("finished", "run-1", 1))

    monkeypatch.setattr(JobElection, "holder", ends)
    assert main(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["run_by"]) == ("finished", None)


@pytest.mark.parametrize(("ago_s", "shown_s"), [(None, None), (3, None), (100, 100)])
def test_a_coordinator_without_any_other_sign_of_death_is_shown_as_silent(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, ago_s: int | None, shown_s: int | None
) -> None:
    """On Kafka a dead one looks like a slow one. The lease is 15 s."""
    now_ms = SystemClock().wall_ms()
    holder = Holder("far", 7, "x", now_ms, None if ago_s is None else now_ms - 1000 * ago_s)
    monkeypatch.setattr(JobElection, "holder", lambda handle: holder)
    assert main(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["silent_s"] == (None if shown_s is None else pytest.approx(shown_s, abs=30))
    assert ("not heard of for" in row["run_by"]) is (shown_s is not None)
    assert row["run_by"].startswith("process 7 on far")


def test_a_foreign_record_in_the_place_of_the_state_is_no_state(job: Path) -> None:
    with opened() as handle:
        handle.stream.append([handle.stream.entry(STATE, "job", {"state": "running", "epoch": "seven"})])
        assert handle.state() is None
    assert main(["status", "--job", "orders"]) == 0


def test_a_job_model_shows_what_tasks_read_also_before_they_have_a_checkpoint(
    job: Path, capsys: Output
) -> None:
    with opened() as handle:
        name = TaskName("Partition 2")
        assignments = TaskAssignments(handle.stream)
        ssp = '{"system":"local","partition":2,"stream":"in","keyBucket":-1}'
        assignments.write(
            [
                (SET_TASK_CONTAINER, name, {"containerId": "0"}),
                (SET_TASK_PARTITION, ssp, {"taskNames": f'["{name}"]'}),
            ]
        )
    assert main(["job-model"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith(name)]
    assert "local.in.2" in line


def test_the_newer_way_in_which_samza_names_a_file_works(job: Path, capsys: Output) -> None:
    file = config_file(job)
    which = ["--config", f"job.config.loader.properties.path={file}"]
    factory = [
        "--config",
        "job.config.loader.factory=org.apache.samza.config.loaders.PropertiesConfigLoaderFactory",
    ]
    assert main(["job-model", "-o", "json", *factory, *which]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    with pytest.raises(SystemExit):
        main(["job-model", "--config", "job.config.loader.factory=org.example.Loader", *which])
    assert "org.example.Loader" in capsys.readouterr().err


def test_every_look_works_with_a_config_file_a_file_url_a_name_and_for_the_only_job(
    job: Path, capsys: Output
) -> None:
    file = config_file(job)
    seen = set()
    for which in (["--config", file], ["--config-path", f"file://{file}"], ["--job", "orders:1"], []):
        assert main(["job-model", "-o", "json", *which]) == 0
        seen.add(capsys.readouterr().out)
    (document,) = seen
    assert [row["changelog_partition"] for row in json.loads(document)] == [0, 1]


def test_checkpoints_are_shown_as_samzas_checkpoint_tool_prints_them(job: Path, capsys: Output) -> None:
    assert main(["checkpoint", "show"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "tasknames.Partition 0.systems.local.streams.in.partitions.0 = 2",
        "tasknames.Partition 1.systems.local.streams.in.partitions.1 = 2",
    ]


def test_checkpoints_as_json_carry_lineage_and_batch(job: Path, capsys: Output) -> None:
    assert main(["checkpoint", "show", "--task", "Partition 1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "Partition 1": {
            "offsets": {"local.in.1": "2"},
            "lineage": "lineage",
            "batch_id": 4,
            "store_positions": {},
            "foreign_offsets": {},
        }
    }


def test_offsets_of_sources_of_sparks_own_are_shown_as_spark_wrote_them(job: Path, capsys: Output) -> None:
    with opened() as handle:
        pipeline = {**handle.config(), "app.class": "orders:Pipeline"}
        handle.stream.write_config(pipeline, run_id="run-1")
        lineages = handle.state_directory / "container-0" / "lineages"
    log = lineages / "lineage" / "spark" / "offsets"
    log.mkdir(parents=True)
    current = {"id": "lineage", "starting_offsets": {}, "plan": "p", "sources": ["local.in", ""]}
    (lineages / "current.json").write_text(json.dumps(current))
    (log / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"tick":4,"next":{}}\n{"logOffset":3}')
    assert main(["checkpoint", "show", "--task", "Partition 1", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["Partition 1"]["foreign_offsets"] == {"1": '{"logOffset":3}'}
    assert main(["checkpoint", "show", "--task", "Partition 1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "tasknames.Partition 1.systems.local.streams.in.partitions.1 = 2",
        '# Partition 1: Spark\'s own source 1 of the plan ended at {"logOffset":3}',
    ]
    commit_with_foreign_sources()
    (log / "5").write_text('v1\n{"batchWatermarkMs":0}\n{"tick":5,"next":{}}\n-')
    assert main(["checkpoint", "show", "--task", "Partition 1", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["Partition 1"]["foreign_offsets"] == {}, "a source that has no offset yet"
    assert not captured.err


def commit_with_foreign_sources(**config: str) -> None:
    """A further batch of a pipeline that reads a source of Spark's own."""
    with opened() as handle:
        handle.stream.write_config(
            {**handle.config(), "app.class": "orders:Pipeline", **config}, run_id="run-1"
        )
        commit = replace(
            handle.checkpoints.read()[TaskName("Partition 1")], batch_id=5, has_foreign_sources=True
        )
        with handle.checkpoints.system() as system:
            log = system.checkpoint_log(handle.checkpoints.log_name)
            log.append(commit_entries({TaskName("Partition 1"): commit}, grouper=GROUPER))


@pytest.mark.parametrize("action", ["show", "export"])
def test_a_task_that_is_not_there_has_no_checkpoint_to_be_shown(
    job: Path, capsys: Output, action: str
) -> None:
    assert main(["checkpoint", action, "--task", "Partition 0", "--task", "Partition 9"]) == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "has no task 'Partition 9'; it has Partition 0, Partition 1" in shown.err


def test_where_offsets_of_sources_of_sparks_own_are_is_said_when_they_are_not_known_here(
    job: Path, capsys: Output
) -> None:
    commit_with_foreign_sources()
    assert main(["checkpoint", "show", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert {task: one["foreign_offsets"] for task, one in json.loads(shown.out).items()} == {
        "Partition 0": {},
        "Partition 1": None,
    }
    [line] = shown.err.splitlines()
    assert f"not shown of 1 tasks: {job}/jobs/orders-1 has no such lineage on this machine" in line
    assert main(["checkpoint", "show", "--task", "Partition 0"]) == 0
    assert main(["checkpoint", "export"]) == 0
    assert not capsys.readouterr().err


def test_spark_is_asked_for_them_only_where_a_commit_says_that_there_are_any(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "grete.spark.lineage.hadoop_files", raising=False)
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    commit_with_foreign_sources(**{"job.lineage.dir": "hdfs://names/lineages"})
    for words in (["show", "--task", "Partition 0"], ["export"]):
        assert main(["checkpoint", *words]) == 0
        assert not capsys.readouterr().err
    assert main(["checkpoint", "show"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2, "checkpoints are shown without Spark, too"
    assert "pip install 'grete[spark]'" in shown.err


def test_a_container_that_was_given_up_or_stopped_is_shown_so_and_not_as_running(
    job: Path, capsys: Output
) -> None:
    with opened() as handle:
        history = History(handle.stream)
        history.append("container-given-up", container="0")
        leadership = handle.election._coordination.campaign(job_scope(JOB))
        write_state(handle.stream, JobState("running", "run-1", leadership.epoch))
        assert main(["status"]) == 0
        assert "1 of 1 container given up" in capsys.readouterr().out
        assert main(["container", "list"]) == 0
        assert "given up" in capsys.readouterr().out
        history.append("container-requested", container="0", what="stop")
        assert handle.rests() == {ZERO: "stopped by an operator"}
        history.append("container-requested", container="0", what="start")
        assert handle.rests() == {}


def test_a_containers_process_is_shown_by_the_number_that_tools_take(job: Path, capsys: Output) -> None:
    with opened() as handle:
        handle.election._coordination.campaign(job_scope(JOB))
        write_launch(handle.stream, ZERO, LaunchRecord(1, 1, "6f1c/4711/99", "", "", "", 1))
        assert main(["container", "list"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[3] == "process"
    assert " 4711 " in line


def container_rows(capsys: Output) -> dict[str, tuple[str, str]]:
    assert main(["container", "list", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {row["container"]: (row["state"], row["message"]) for row in rows}


def test_containers_of_a_job_that_has_failed_say_what_happened(job: Path, capsys: Output) -> None:
    """Of those that are killed when another one fails there is no row of an exit, or an old one."""
    with opened() as handle:
        tasks = {TaskName(f"Partition {number}"): str(number) for number in range(4)}
        handle.stream.put(SET_TASK_CONTAINER, tasks)
        history = History(handle.stream)

        def exits(container: str, code: str, meaning: str, reason: str = "") -> None:
            details = {"exit_code": code, "meaning": meaning, "cause": "", "reason": reason}
            history.append("container-exited", container=container, **details)

        exits("3", "1", "failed", "of the run before")
        history.append("deployment", run_id="run-2")
        exits("0", "0", "ended")
        exits("1", "-9", "killed", "signal 9")
        write_state(handle.stream, JobState("running", "run-2", 2))
        assert container_rows(capsys) == {
            "0": ("ended", ""),
            "1": ("failed", "killed: signal 9"),
            **dict.fromkeys("23", ("not started", "")),
        }
        exits("2", "3", "poison message", "KeyError 'page' at local.in.0 offset 4")
        message = "container 2 ended with code 3: KeyError 'page' at local.in.0 offset 4"
        history.append("failed", message=message)
        write_state(handle.stream, JobState("failed", "run-2", 2, message=message))
    assert container_rows(capsys) == {
        "0": ("ended", ""),
        "1": ("ended with the job", message),
        "2": ("failed", "poison message: KeyError 'page' at local.in.0 offset 4"),
        "3": ("ended with the job", message),
    }
    assert main(["container", "list"]) == 0
    assert "poison message: KeyError 'page'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        (
            {"exit_code": "6", "meaning": "stopped", "cause": "enough for today"},
            ("stopped", "enough for today"),
        ),
        ({"exit_code": "1", "meaning": "failed", "reason": "no space"}, ("failed", "no space")),
        ({"exit_code": "1", "meaning": "failed"}, ("failed", "exit code 1")),
        ({"exit_code": "8", "meaning": "cannot work"}, ("failed", "cannot work: exit code 8")),
    ],
)
def test_how_a_container_ended_is_shown_with_its_reason(
    job: Path, capsys: Output, details: dict[str, str], shown: tuple[str, str]
) -> None:
    with opened() as handle:
        History(handle.stream).append("container-exited", container="0", **details)
    assert container_rows(capsys) == {"0": shown}


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_stream_write_takes_the_flags_of_samzas_writer(job: Path, capsys: Output, form: str) -> None:
    words = ["stream", "write", f"--config-path={form.format(config_file(job))}", "--type", "set-config"]
    assert main([*words, "--key", "job.container.count", "--value", "8"]) == 0
    assert config()["job.container.count"] == "8"
    assert "the job has 2 tasks so far" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("type_", "key", "reason"),
    [
        ("set-changelog", "Partition 0", "only set-config"),
        ("set-config", "", "blank"),
        ("set-config", "job.autosizing.enabled", "neither true nor false"),
    ],
)
def test_stream_write_checks_type_key_and_value(
    job: Path, capsys: Output, type_: str, key: str, reason: str
) -> None:
    assert main(["stream", "write", "--type", type_, "--key", key, "--value", "2"]) == 2
    assert reason in capsys.readouterr().err


def test_stream_dump_raw_prints_a_json_object_a_line_with_every_byte(job: Path, capsys: Output) -> None:
    assert main(["stream", "dump", "--raw", "--job", "orders"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with opened() as handle:
        records = list(handle.coordinator_log.read())
    assert [tuple(line) for line in lines] == [("offset", "key", "value")] * len(records)
    assert [line["offset"] for line in lines] == [record.offset for record in records]
    assert [bytes.fromhex(line["key"]) for line in lines] == [record.key for record in records]
    assert [line["value"] and bytes.fromhex(line["value"]) for line in lines] == [r.value for r in records]


@pytest.mark.parametrize("words", [["stream", "dump", "--raw"], ["job-model"], ["history"]])
def test_of_several_jobs_one_has_to_be_named_and_the_message_has_them_as_they_are_named(
    job: Path, capsys: Output, words: list[str]
) -> None:
    other = JobId(JOB.name, "2")
    with opened() as handle:
        claim_stream(handle.coordinator_log._file, other)  # type: ignore[attr-defined] # as `grete run` does
    assert main(words) == 2
    message = capsys.readouterr().err
    assert f"jobs in {job}: {JOB.name}, {JOB.name}:2" in message
    named = message.split(": ")[-1].strip().split(", ")
    assert [JobId.parse(name) for name in named] == [JOB, other]


def test_stream_dump_decodes_messages_and_masks_secrets(job: Path, capsys: Output) -> None:
    assert main(["stream", "dump"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    first = json.loads(text.splitlines()[0])
    assert first.items() >= {"type": "set-config", "key": "job.coordinator.system"}.items()
    assert first["values"] == {"value": "local"}


def test_the_way_to_a_leader_is_that_of_its_epoch_and_a_dump_masks_its_token(
    job: Path, capsys: Output
) -> None:
    with opened() as handle:
        assert read_channel(handle.stream) is None
        write_channel(handle.stream, ChannelAddress("10.0.0.1:7000", "of-the-first"), 4)
        write_channel(handle.stream, ChannelAddress("10.0.0.2:7000", "of-the-next"), 5)
        assert (
            read_channel(handle.stream, 5)
            == read_channel(handle.stream)
            == ChannelAddress("10.0.0.2:7000", "of-the-next")
        )
        assert read_channel(handle.stream, 6) is None, "that leader has not said yet where it is"
    assert main(["stream", "dump"]) == 0
    text = capsys.readouterr().out
    assert "10.0.0.2:7000" in text
    assert "of-the-next" not in text


def test_stream_dump_of_a_log_shows_checkpoints(job: Path, capsys: Output) -> None:
    assert main(["stream", "dump", "--log", checkpoint_log_name(JOB)]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["key"]["taskName"] == "Partition 0"


def test_stream_tail_shows_the_last_records(job: Path, capsys: Output) -> None:
    assert main(["stream", "tail", "local.in", "-n", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["partition"], line["offset"], line["value"]) for line in lines] == [
        (0, 3, "v"),
        (1, 2, "v"),
    ]
    assert main(["stream", "tail", "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_history_shows_events_in_order(job: Path, capsys: Output) -> None:
    assert main(["history"]) == 0
    (shown,) = capsys.readouterr().out.splitlines()
    assert shown.endswith("deployment          run_id=run-1  reason=first")
    assert getpass.getuser() in shown


def test_doctor_finds_what_a_configuration_lacks(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(
        "PYSPARK_PYTHON", raising=False
    )  # which a session that started in this process has set
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        file = config_file(job, **{"task.inputs": "local.nowhere", "job.http.port": port})
        code = main(["doctor", "--config", file, "-o", "json"])
    assert code == 1
    failed = {f["check"]: f["way_out"] for f in json.loads(capsys.readouterr().out) if not f["ok"]}
    assert failed == {
        "input": "grete stream create local.nowhere --partitions N",
        "application": "set job.application.path to the folder that holds it, or install it",
        "job.http.port": "is the job running? Else set job.http.port to a free port, or remove it",
        "secret": "set the variable here, or put the file there",
    }
