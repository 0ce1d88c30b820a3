"""A job that has finished, for tests of commands that look at one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.metadata.history import History
from grete.metadata.job_index import claim_stream
from grete.metadata.job_state import JobState, write_state
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER
from grete.model.streams import StreamSpec
from grete.operations import JobHandle, open_job
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


def finish_job(system: LocalSystem) -> None:
    """Make it: two tasks in one container; one record of seven is not processed yet."""
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


def changelog_of_totals(system: LocalSystem) -> str:
    """The changelog of the job's store: numbers as Samza writes them, by keys that are texts. Its stream."""
    with opened() as handle:
        handle.stream.change_config({"stores.totals.msg.serde": "long"}, run_id="r", reason="")
        stream = handle.settings.store("totals").changelog_stream(handle.job)
    system.create_stream(StreamSpec(stream, 2, compacted=True))
    entries = [("a", 1, 0), ("b", 2, 0), ("a", 3, 0), ("c", 4, 0), ("c", None, 0), ("z", 5, 1)]
    system.append(
        stream,
        (
            Message(key.encode(), None if value is None else value.to_bytes(8, "big"), 1, partition=partition)
            for key, value, partition in entries
        ),
    )
    return stream


def config_file(job: Path, **changes: str) -> str:
    path = job / "orders.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**CONFIG, **changes}.items()))
    return str(path)


def config() -> dict[str, str]:
    with opened() as handle:
        return handle.config()


Output = pytest.CaptureFixture[str]
