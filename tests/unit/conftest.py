"""Fixtures of tests without servers and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_output import check_outputs
from tests.unit.finished_job import CONFIG, GROUPER, JOB, opened

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.metadata.history import History
from grete.metadata.job_index import claim_stream
from grete.metadata.job_state import (
    JobState,
    write_state,
)
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message


@pytest.fixture(scope="session", autouse=True)
def documented_outputs() -> None:
    """What commands print for programs is what docs/json-output.md says."""
    check_outputs()


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
