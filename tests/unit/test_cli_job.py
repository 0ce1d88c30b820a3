"""Looking at a job and changing its configuration from the command line. No Spark: the job's stream is enough."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.rules.validate import validate
from grete.coordination.base import Holder
from grete.errors import Fenced
from grete.keyed_log.base import Entry
from grete.launch.base import ContainerStart
from grete.launch.process import ProcessLauncher
from grete.metadata.assignments import TaskAssignments
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.container_requests import read_container_requests
from grete.metadata.history import History
from grete.metadata.job_index import claim_stream
from grete.metadata.job_state import (
    STATE,
    JobState,
    StopRequest,
    read_drain_request,
    read_stop_request,
    write_state,
)
from grete.metadata.launches import LaunchRecord, write_launch
from grete.model.fence import container_epoch, container_fence, job_scope
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER, SET_TASK_PARTITION
from grete.model.streams import StreamSpec
from grete.operations import JobHandle, open_job
from grete.operations.configuration import roll_back_config, set_config
from grete.systems.local.system import LocalSystem, Message

JOB, ZERO = JobId("orders"), ContainerId("0")
CONFIG = {
    "job.name": "orders",
    "job.coordinator.system": "local",
    "task.class": "orders:Orders",
    "task.inputs": "local.in",
    "stores.totals.factory": "grete.store.sqlite",
    "shop.password": "hunter2hunter2",
    "shop.token": "${env:SHOP_TOKEN}",
}
GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"


@contextmanager
def opened() -> Iterator[JobHandle]:
    with open_job(JOB, must_exist=False) as handle:
        yield handle


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Path:
    """A job of two tasks in one container that has finished; one record of seven is not processed yet."""
    system.create_stream(StreamSpec("in", 2))
    system.append("in", (Message(b"k", b"v", 1, partition=i % 2) for i in range(7)))
    tasks = [TaskName("Partition 0"), TaskName("Partition 1")]
    commits = {
        task: TaskCommit({SystemStreamPartition("local", "in", partition): "2"}, "lineage", 4)
        for partition, task in enumerate(tasks)
    }
    system.checkpoint_log(checkpoint_log_name(JOB)).append(commit_entries(commits, grouper=GROUPER))
    with opened() as handle:
        claim_stream(handle.coordinator_log._file, JOB)  # type: ignore[attr-defined] # as `grete run` does
        handle.stream.write_config(CONFIG, run_id="run-1", reason="first")
        handle.stream.put(SET_TASK_CONTAINER, dict.fromkeys(tasks, "0"))
        handle.stream.put(SET_CHANGELOG, {task: str(i) for i, task in enumerate(tasks)})
        History(handle.stream).append("deployment", run_id="run-1", reason="first")
        write_state(handle.stream, JobState("finished", "run-1", 1, "http://127.0.0.1:1", "token"))
    return home


def config_file(job: Path, **changes: str) -> str:
    path = job / "orders.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**CONFIG, **changes}.items()))
    return str(path)


def config() -> dict[str, str]:
    with opened() as handle:
        return handle.config()


Output = pytest.CaptureFixture[str]


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


def test_a_job_recorded_as_running_that_nobody_runs_has_died(job: Path, capsys: Output) -> None:
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

    def ends(handle: JobHandle) -> None:
        write_state(handle.stream, JobState("finished", "run-1", 1))

    monkeypatch.setattr(JobHandle, "holder", ends)
    assert main(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["run_by"]) == ("finished", None)


@pytest.mark.parametrize(("ago_s", "told"), [(None, None), (3, None), (100, 100)])
def test_a_coordinator_that_only_its_silence_tells_of_is_said_to_be_silent(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, ago_s: int | None, told: int | None
) -> None:
    """On Kafka nobody can tell a dead one from a slow one. The lease is 15 s."""
    now_ms = SystemClock().wall_ms()
    holder = Holder("far", 7, "x", now_ms, None if ago_s is None else now_ms - 1000 * ago_s)
    monkeypatch.setattr(JobHandle, "holder", lambda handle: holder)
    assert main(["status", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["silent_s"] == (None if told is None else pytest.approx(told, abs=30))
    assert ("not heard of for" in row["run_by"]) is (told is not None)
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
        }
    }


def test_config_get_masks_secrets_but_shows_references_to_them(job: Path, capsys: Output) -> None:
    assert main(["config", "get"]) == 0
    shown = capsys.readouterr().out
    assert "shop.password=********" in shown
    assert "shop.token=${env:SHOP_TOKEN}" in shown
    assert "hunter2" not in shown
    assert main(["config", "get", "shop.password", "--show-secrets"]) == 0
    assert capsys.readouterr().out == "hunter2hunter2\n"


def test_config_get_of_a_key_that_is_not_set_says_its_default(job: Path, capsys: Output) -> None:
    assert main(["config", "get", "job.id"]) == 2
    assert capsys.readouterr().err == "grete: job.id is not set; its default is '1'\n"


def test_config_set_changes_keys_together_and_says_what_that_touches(job: Path, capsys: Output) -> None:
    assert main(["config", "set", "job.container.count=2", "shop.name=a=b", "--reason", "more"]) == 0
    assert "job.container.count: (not set) -> 2  (restart-query)" in capsys.readouterr().out
    assert (config()["job.container.count"], config()["shop.name"]) == ("2", "a=b")
    assert main(["config", "history", "-o", "json"]) == 0
    generations = json.loads(capsys.readouterr().out)
    assert [g["reason"] for g in generations] == ["first", "more"]
    assert len(generations[-1]["changes"]) == 2


def test_what_a_change_touches_is_the_changes_own_matter_and_not_its_keys(job: Path, capsys: Output) -> None:
    """A default that is written out and a key that grete only knows of change nothing that runs."""
    written_out = f"job.systemstreampartition.grouper.factory={GROUPER}"
    assert (
        main(["config", "set", written_out, "cluster-manager.container.memory.mb=2048", "task.window.ms=7"])
        == 0
    )
    touches = {line.split(":")[0]: line.rsplit("(")[-1] for line in _changed(capsys)}
    assert touches == {
        "job.systemstreampartition.grouper.factory": "live)",
        "cluster-manager.container.memory.mb": "live)",
        "task.window.ms": "restart-query)",
    }


def _changed(capsys: Output) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "->" in line]


def test_two_who_set_different_keys_at_the_same_moment_both_get_what_they_set(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as one, opened() as other:

        def validate_while_the_other_writes(new: dict[str, str]) -> None:
            monkeypatch.setattr("grete.operations.configuration.validate", validate)
            set_config(other, {"task.window.ms": "70"}, reason="theirs")

        monkeypatch.setattr("grete.operations.configuration.validate", validate_while_the_other_writes)
        set_config(one, {"task.commit.ms": "5000", "shop.token": None}, reason="ours")
    assert config()["task.window.ms"] == "70"
    assert config()["task.commit.ms"] == "5000"
    assert "shop.token" not in config()


def test_config_unset_removes_keys(job: Path) -> None:
    assert main(["config", "unset", "shop.token", "shop.password"]) == 0
    assert "shop.token" not in config()
    assert "shop.password" not in config()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("job.container.cuont", "2"), "did you mean job.container.count?"),
        (("job.container.count", "two"), "whole number"),
        (("stores.totals.factory", "other"), "factory"),
        ((" ", "2"), "blank"),
    ],
)
def test_a_change_that_is_wrong_is_refused_with_the_reason(
    job: Path, capsys: Output, words: tuple[str, str], reason: str
) -> None:
    before = config()
    assert main(["config", "set", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("grete: ")
    assert reason in error
    assert config() == before


def test_what_another_program_changed_of_the_state_is_taken_back_without_force(
    job: Path, capsys: Output
) -> None:
    """What counts is the configuration that the job has run with, not the one that stands in the stream."""
    moved = "stores.totals.changelog"
    with opened() as handle:
        TaskAssignments(handle.stream).write(ConfigInForce(handle.stream).records(CONFIG))
        handle.stream.write_config({**CONFIG, moved: "local.other"}, run_id="run-1", reason="by hand")
    assert main(["config", "set", moved, "local.third"]) == 2
    assert "can not change from unset to 'local.third'" in capsys.readouterr().err
    assert main(["config", "set", "task.commit.ms", "5000"]) == 0
    assert main(["config", "unset", moved]) == 0
    assert moved not in config()
    with opened() as handle:
        assert ConfigInForce(handle.stream).refusals(handle.config()) == []


def test_a_change_to_what_is_set_already_is_no_generation(job: Path, capsys: Output) -> None:
    assert main(["config", "set", "task.commit.ms", "5000"]) == 0
    for _ in range(2):
        assert main(["config", "set", "task.commit.ms", "5000"]) == 0
        assert main(["config", "unset", "no.key.of.mine"]) == 0
    with opened() as handle:
        assert len(handle.config_generations()) == 2
    assert main(["config", "rollback"]) == 0
    assert "task.commit.ms" not in config()


def test_a_rollback_passes_over_generations_that_changed_nothing(job: Path) -> None:
    with opened() as handle:
        set_config(handle, {"task.commit.ms": "5000"}, reason="")
        handle.stream.write_config(handle.config(), run_id="run-2")  # the same file was submitted again
        roll_back_config(handle, None)
        assert handle.config() == CONFIG


def test_a_rollback_passes_over_what_is_not_valid(job: Path) -> None:
    with opened() as handle:
        set_config(handle, {"task.commit.ms": "5000"}, reason="")
        handle.stream.write_config({**handle.config(), "job.container.count": "0"}, run_id="run-2")
        handle.stream.write_config({**handle.config(), "job.container.count": "1"}, run_id="run-3")
        roll_back_config(handle, None)
        assert handle.config() == {**CONFIG, "task.commit.ms": "5000"}


def test_a_rollback_that_has_nothing_to_go_back_to_is_refused(job: Path, capsys: Output) -> None:
    assert main(["config", "rollback"]) == 2
    assert "there is nothing to roll back" in capsys.readouterr().err
    with opened() as handle:
        (only,) = handle.config_generations()
    assert main(["config", "rollback", "--to", str(only.number)]) == 2
    assert f"the configuration is that of generation {only.number}" in capsys.readouterr().err


def by_another_program(handle: JobHandle, key: str, value: str, *, at_ms: int, version: int = 1) -> None:
    """As Samza's CoordinatorStreamWriter writes it."""
    written = {
        "host": "10.0.0.9",
        "source": "samza-tool",
        "values": {"value": value},
        "username": "samza",
        "timestamp": at_ms,
    }
    name = json.dumps([version, "set-config", key]).encode()
    handle.coordinator_log.append([Entry(name, json.dumps(written).encode())])


def test_each_change_of_another_program_stands_in_its_own_name(job: Path, capsys: Output) -> None:
    with opened() as handle:
        by_another_program(handle, "cluster-manager.container.retry.count", "77", at_ms=1_000_000)
        by_another_program(handle, "cluster-manager.container.retry.window.ms", "78", at_ms=1_000_001)
        by_another_program(handle, "my.other", "1", at_ms=2_000_000)
        by_another_program(handle, "my.of.version.two", "1", at_ms=2_000_001, version=2)
        set_config(handle, {"my.mine": "1"}, reason="mine only")
    assert main(["config", "history", "-o", "json"]) == 0
    _, retries, other, mine = json.loads(capsys.readouterr().out)
    assert (retries["who"], retries["source"]) == ("samza@10.0.0.9", "samza-tool")
    assert [change["key"].rpartition(".")[2] for change in retries["changes"]] == ["count", "ms"]
    assert [change["key"] for change in other["changes"]] == ["my.other"]
    assert (mine["reason"], [change["key"] for change in mine["changes"]]) == ("mine only", ["my.mine"])
    assert main(["config", "rollback", "--to", str(retries["number"])]) == 0
    left = {key for key in config() if key not in CONFIG}
    assert left == {"cluster-manager.container.retry.count", "cluster-manager.container.retry.window.ms"}


@pytest.fixture
def orphan(job: Path, system: LocalSystem) -> Iterator[ProcessLauncher]:
    """The launcher of a process that goes on as container 0 of a job whose coordinator died."""
    epoch = container_epoch(1, 1)
    with opened() as handle:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        launcher = ProcessLauncher(command, handle.state_directory / "logs")
        launcher.start(ContainerStart(ZERO, epoch, {"GRETE_CONTAINER_EPOCH": str(epoch)}))
        write_state(handle.stream, JobState("running", "run-1", 1))
        record = LaunchRecord(epoch, 1, launcher.handle(ZERO), "", "", "", epoch)
        write_launch(handle.stream, ZERO, record)
    system.raise_fence([container_fence(JOB, ZERO, epoch)])
    yield launcher
    launcher.close()


def test_what_a_dead_coordinator_has_left_is_shown_fenced_off_and_stopped(
    orphan: ProcessLauncher, system: LocalSystem, capsys: Output
) -> None:
    assert main(["status"]) == 0
    assert "died, 1 container on its own" in capsys.readouterr().out
    assert main(["drain"]) == 1
    assert "grete run --job orders --until-drained" in capsys.readouterr().err
    assert main(["stop", "--reason", "cleaning up"]) == 0
    assert [ended.exit_code for ended in orphan.exits()] == [-signal.SIGTERM]
    with pytest.raises(Fenced):
        system.raise_fence([container_fence(JOB, ZERO, container_epoch(1, 1))])
    with opened() as handle:
        assert handle.launches() == {}
        ended = handle.state()
        assert ended is not None
        assert (ended.state, ended.message) == ("stopped", "cleaning up")
        assert handle.holder() is None


@pytest.fixture
def silent(job: Path) -> Iterator[None]:
    """A coordinator that is alive to whoever looks at its process, and renews its leadership no more."""
    with opened() as handle:
        set_config(handle, {"job.coordinator.lease.ttl.ms": "1000"}, reason="test")
    with opened() as leader:
        leader._coordination.campaign(job_scope(JOB), epoch_floor=1)
        yield


def test_what_a_silent_coordinator_has_left_is_stopped_in_its_place(
    orphan: ProcessLauncher, silent: None, capsys: Output
) -> None:
    assert main(["drain"]) == 1
    assert "grete run --job orders --until-drained" in capsys.readouterr().err
    assert main(["stop", "--reason", "cleaning up"]) == 0
    assert [ended.exit_code for ended in orphan.exits()] == [-signal.SIGTERM]
    assert capsys.readouterr().out == "orders: stopped\n"


def test_stop_of_a_job_whose_silent_coordinator_has_left_nothing_says_who_that_is(
    silent: None, capsys: Output
) -> None:
    assert main(["stop"]) == 1
    assert f"is not running: process {os.getpid()}" in capsys.readouterr().err


def test_one_container_that_a_dead_coordinator_has_left_is_stopped(
    orphan: ProcessLauncher, capsys: Output
) -> None:
    assert main(["container", "stop", "0"]) == 0
    assert [ended.exit_code for ended in orphan.exits()] == [-signal.SIGTERM]
    assert "fenced off and ended" in capsys.readouterr().out


def test_a_container_that_was_given_up_or_stopped_is_shown_so_and_not_as_running(
    job: Path, capsys: Output
) -> None:
    with opened() as handle:
        history = History(handle.stream)
        history.append("container-given-up", container="0")
        leadership = handle._coordination.campaign(job_scope(JOB))
        write_state(handle.stream, JobState("running", "run-1", leadership.epoch))
        assert main(["status"]) == 0
        assert "1 of 1 container given up" in capsys.readouterr().out
        assert main(["container", "list"]) == 0
        assert "given up" in capsys.readouterr().out
        history.append("container-requested", container="0", what="stop")
        assert handle.rests() == {ZERO: "stopped by an operator"}
        history.append("container-requested", container="0", what="start")
        assert handle.rests() == {}


def test_force_writes_what_is_not_known(job: Path) -> None:
    assert main(["config", "set", "job.container.cuont", "2", "--force"]) == 0
    assert config()["job.container.cuont"] == "2"


def test_a_secret_written_out_is_written_with_a_warning(job: Path, capsys: Output) -> None:
    assert main(["config", "set", "other.password", "correct-horse"]) == 0
    shown = capsys.readouterr()
    assert "${env:NAME}" in shown.err
    assert "correct-horse" not in shown.err + shown.out


def test_config_diff_shows_what_submitting_a_file_would_change(job: Path, capsys: Output) -> None:
    file = config_file(job, **{"job.container.count": "2"})
    assert main(["config", "diff", file, "-o", "json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)
    assert (change["key"], change["old"], change["new"]) == ("job.container.count", None, "2")


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
        ("set-config", "job.elasticity.factor", "elasticity"),
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
    assert "deployment          run_id=run-1  reason=first" in capsys.readouterr().out


def test_who_is_asked_is_whoever_leads_though_it_has_not_said_so_yet(job: Path) -> None:
    """While a coordinator starts the recorded state, if there is any, is still that of the run before."""
    zero = ContainerId("0")
    with opened() as leader, opened() as handle:
        leadership = leader._coordination.campaign(job_scope(JOB), epoch_floor=1)
        handle.request_stop(5, "enough")
        handle.request_drain("enough")
        handle.request_container(zero, "restart", 5, "odd")
        stop, drain = read_stop_request(handle.stream), read_drain_request(handle.stream)
        [restart] = read_container_requests(handle.stream)
    assert stop is not None
    assert drain is not None
    assert {stop.epoch, drain.epoch, restart.epoch} == {leadership.epoch}


def test_a_job_that_has_just_been_submitted_for_the_first_time_can_be_stopped(
    home: Path, system: LocalSystem
) -> None:
    with opened() as leader, opened() as handle:
        leader.stream.write_config(CONFIG, run_id="run-1", reason="first")
        leadership = leader._coordination.campaign(job_scope(JOB))
        handle.request_stop(5, "enough")
        assert read_stop_request(handle.stream) == StopRequest(leadership.epoch, 5, "enough")


def test_stop_of_a_job_that_does_not_run_fails(job: Path, capsys: Output) -> None:
    assert main(["stop", "--deadline", "1"]) == 1
    assert "is not running" in capsys.readouterr().err


def test_doctor_finds_what_a_configuration_lacks(job: Path, capsys: Output) -> None:
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
    }
