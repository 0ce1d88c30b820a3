"""`grete job delete`: everything that is the job's own goes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.cli.main import main
from grete.config.settings import Settings
from grete.metadata.assignments import TaskAssignments
from grete.metadata.job_index import claim_stream
from grete.metadata.job_state import JobState, write_state
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_TASK_CONTAINER, VALUE_FIELDS
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message

GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
Output = pytest.CaptureFixture[str]


def submit(system: LocalSystem, home: Path, job: JobId) -> None:
    """A job that ran: its stream, checkpoints, a changelog, a folder."""
    config = {
        "job.name": job.name,
        "job.coordinator.system": "local",
        "task.class": "a:B",
        "task.inputs": "local.in",
        "stores.totals.factory": "grete.store.sqlite",
    }
    with open_job(job, must_exist=False) as handle:
        claim_stream(handle.coordinator_log._file, job)  # type: ignore[attr-defined] # as `grete run` does
        handle.stream.write_config(config, run_id="run-1", reason="first")
        write_state(handle.stream, JobState("finished", "run-1", 1))
    commit = {TaskName("Partition 0"): TaskCommit({SystemStreamPartition("local", "in", 0): "2"})}
    system.checkpoint_log(checkpoint_log_name(job)).append(commit_entries(commit, grouper=GROUPER))
    changelog = Settings.of(config).store("totals").changelog_stream(job)
    system.create_stream(StreamSpec(changelog, 1, compacted=True))
    system.append(changelog, [Message(b"k", b"v", 1, 0)])
    (home / "jobs" / str(job) / "logs").mkdir(parents=True)


@pytest.fixture
def jobs(home: Path, system: LocalSystem) -> Path:
    system.create_stream(StreamSpec("in", 1))
    for name in ("orders", "views"):
        submit(system, home, JobId(name))
    return home


def everything(system: LocalSystem, home: Path) -> tuple[object, ...]:
    assert main(["status"]) == 0
    logs = {
        name: system.checkpoint_log(checkpoint_log_name(JobId(name))).end() for name in ("orders", "views")
    }
    return sorted(system.streams()), logs, sorted(path.name for path in (home / "jobs").iterdir())


def test_without_execute_it_is_said_what_would_go_and_nothing_does(
    jobs: Path, system: LocalSystem, capsys: Output
) -> None:
    before = everything(system, jobs)
    capsys.readouterr()
    assert main(["job", "delete", "--job", "orders", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "job": "orders",
        "deleted": False,
        "coordinator_stream": "__samza_coordinator_orders_1",
        "checkpoint_log": f"local.{checkpoint_log_name(JobId('orders'))}",
        "changelogs": ["local.orders-1-totals-changelog"],
        "folder": str(jobs / "jobs" / "orders-1"),
        "checkpoint_copies": [],
        "log_stream": "",
        "left": [],
        "lineages": "",
        "snapshots": "",
        "lineages_left": "",
    }
    assert everything(system, jobs) == before


def test_a_deleted_job_is_gone_with_all_that_was_its_own(
    jobs: Path, system: LocalSystem, capsys: Output
) -> None:
    views = system.checkpoint_log(checkpoint_log_name(JobId("views"))).end()
    assert main(["job", "delete", "--job", "orders", "--execute"]) == 0
    assert everything(system, jobs) == (
        ["in", "views-1-totals-changelog"],
        {"orders": -1, "views": views},
        ["views-1"],
    )
    shown = capsys.readouterr().out
    assert "views" in shown.splitlines()[-1]
    assert "orders  " not in "\n".join(shown.splitlines()[-2:])
    assert main(["job", "delete", "--job", "orders", "--execute"]) == 1, "it is not there any more"


def test_a_job_of_the_same_name_begins_from_scratch(jobs: Path, system: LocalSystem) -> None:
    assert main(["job", "delete", "--job", "orders", "--execute"]) == 0
    submit(system, jobs, JobId("orders"))
    with open_job(JobId("orders")) as handle:
        assert len(handle.config_generations()) == 1
        assert set(handle.checkpoints.read()) == {TaskName("Partition 0")}


def test_copies_of_checkpoints_and_the_stream_of_logs_go_and_what_others_write_is_named(
    jobs: Path, system: LocalSystem, tmp_path: Path, capsys: Output
) -> None:
    ours, theirs = tmp_path / "orders-Partition 0-checkpoints", tmp_path / "views-Partition 0-checkpoints"
    theirs.write_bytes(b"{}")
    system.create_stream(StreamSpec("__samza_orders_1_logs", 1))
    system.create_stream(StreamSpec("said", 1))
    diagnostics = {
        "task.checkpoint.factory": "grete.checkpoint.file-system",
        "task.checkpoint.path": str(tmp_path),
        "task.log4j.system": "local",
        "job.diagnostics.enabled": "true",
        "metrics.reporter.diagnosticsreporter.stream": "local.said",
        "job.snapshot.dir": str(tmp_path / "snapshots"),
    }
    snapshots, of_others = tmp_path / "snapshots" / "orders-1", tmp_path / "snapshots" / "views-1"
    for folder in (snapshots, of_others):
        folder.mkdir(parents=True)
    with open_job(JobId("orders")) as handle:
        handle.stream.write_config({**handle.config(), **diagnostics}, run_id="run-2")
        TaskAssignments(handle.stream).write(
            [(SET_TASK_CONTAINER, "Partition 0", {VALUE_FIELDS[SET_TASK_CONTAINER]: "0"})]
        )
        handle.checkpoints.write(handle.checkpoints.read())
    assert ours.exists()
    assert main(["job", "delete", "--job", "orders"]) == 0
    shown = capsys.readouterr().out
    assert str(ours) in shown
    assert str(snapshots) in shown
    assert snapshots.exists()
    assert "local.__samza_orders_1_logs" in shown
    assert shown.splitlines()[-1] == "Inputs and outputs stay, local.said too (other jobs may write it)."
    assert main(["job", "delete", "--job", "orders", "--execute"]) == 0
    assert {path.name for path in tmp_path.glob("*-checkpoints*")} == {theirs.name}
    assert list((tmp_path / "snapshots").iterdir()) == [of_others]
    assert {"said", "__samza_orders_1_logs"}.intersection(system.streams()) == {"said"}


def test_of_a_task_spark_is_not_asked_for_lineages(jobs: Path, system: LocalSystem, capsys: Output) -> None:
    """`tests/fault/test_lineages_on_hdfs.py` has those of pipelines."""
    with open_job(JobId("orders")) as handle:
        place = {"job.lineage.dir": "hdfs://names/lineages"}
        handle.stream.write_config({**handle.config(), **place}, run_id="run-2")
    assert main(["job", "delete", "--job", "orders", "--execute"]) == 0
    said = capsys.readouterr()
    assert "lineages" not in said.out
    assert not said.err


def test_a_running_job_is_not_deleted(jobs: Path, system: LocalSystem, capsys: Output) -> None:
    before = everything(system, jobs)
    with open_job(JobId("orders")) as running, running.election.stopped("a test"):
        assert main(["job", "delete", "--job", "orders", "--execute"]) == 4
    assert "stop it first" in capsys.readouterr().err
    assert everything(system, jobs) == before


def test_a_job_whose_only_submit_has_failed_is_forgotten(jobs: Path, capsys: Output) -> None:
    note = jobs / "coordinators" / "typo-1.json"
    note.parent.mkdir()
    note.write_text('{"job.name": "typo", "job.id": "1", "job.coordinator.system": "local"}')
    assert main(["job", "delete", "--job", "typo"]) == 0
    assert note.exists()
    assert main(["job", "delete", "--job", "typo", "--execute"]) == 0
    assert not note.exists()
    assert main(["job", "delete", "--job", "typo"]) == 1
