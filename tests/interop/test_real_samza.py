"""Both directions with the real Samza 1.8.0: what one writes to Kafka the other reads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.applied_startpoints import Applied, applied_entry
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries, read_commits
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordinator.assignment_records import ssp_key
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager
from grete.keyed_log.base import Fence
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.keyed_log.kafka import KafkaKeyedLog, open_checkpoint_log
from grete.keyed_log.kafka_header import AppendOrigin
from grete.keyed_log.kafka_writer import Append
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream, stream_name
from grete.metadata.locality import LocalityManager
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.model.messages import SET_TASK_CONTAINER, SET_TASK_MODE, SET_TASK_PARTITION
from grete.model.metadata import JobCoordinatorMetadata
from grete.model.startpoint import Startpoint, StartpointKind
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient
from grete_workbench.real_samza import GROUPER, run_samza, samza_config
from grete_workbench.samza.startpoint_manager import StartpointManager

SSPS = [SystemStreamPartition("kafka", "page-views", number) for number in range(2)]
TASKS = [TaskName("Partition 0"), TaskName("Partition 1")]
Lines = set[tuple[str, ...]]


@pytest.fixture
def job() -> JobId:
    return JobId(f"interop_{uuid.uuid4().hex[:8]}", "1")


@pytest.fixture
def config(kafka: KafkaCluster, job: JobId) -> dict[str, str]:
    return samza_config(kafka.bootstrap, job.name)


@pytest.fixture
def stream_log(config: dict[str, str], job: JobId) -> Iterator[KafkaKeyedLog]:
    with closing(open_coordinator_log(Settings.of(config), stream_name(job), Path(), SystemClock())) as log:
        yield log


@pytest.fixture
def checkpoint_log(config: dict[str, str], job: JobId) -> Iterator[KafkaKeyedLog]:
    with closing(
        open_checkpoint_log(Settings.of(config), "kafka", checkpoint_log_name(job), SystemClock())
    ) as log:
        yield log


def write_all(stream: CoordinatorStream, log: KafkaKeyedLog, config: dict[str, str], fence: Fence) -> None:
    stream.write_config({**config, "vanished": "x"}, run_id="first")
    stream.write_config({**config, "text": 'a "quoted" ä漢 text', "empty": ""}, run_id="second")
    LocalityManager(stream).write_locality(ContainerId("0"), "host-a")
    ChangelogMapping(stream).write({TASKS[0]: 0, TASKS[1]: 1})
    TaskAssignments(stream).write(
        record
        for number, task in enumerate(TASKS)
        for record in (
            (SET_TASK_CONTAINER, task, {"containerId": str(number)}),
            (SET_TASK_MODE, task, {"taskMode": TaskMode.ACTIVE.value}),
            (SET_TASK_PARTITION, ssp_key(SSPS[number]), {"taskNames": f'["{task}"]'}),
        )
    )
    JobCoordinatorMetadataManager(stream, "NON_YARN").write(JobCoordinatorMetadata("epoch-7", "123", "-456"))
    now_ms = time.time_ns() // 1_000_000
    startpoints = StartpointManager(log, fence=fence)
    startpoints.write(SSPS[0], TASKS[0], Startpoint(StartpointKind.SPECIFIC, now_ms, offset="42"))
    startpoints.write(
        SSPS[1], TASKS[1], Startpoint(StartpointKind.TIMESTAMP, now_ms, timestamp_ms=1_700_000_000_000)
    )


EXPECTED: Lines = {
    ("locality", "0", "host-a"),
    ("changelog", "Partition 0", "0"),
    ("changelog", "Partition 1", "1"),
    ("container", "Partition 0", "0"),
    ("container", "Partition 1", "1"),
    ("mode", "Partition 0", "Active"),
    ("mode", "Partition 1", "Active"),
    ("tasks", "kafka.page-views.0", "Partition 0"),
    ("tasks", "kafka.page-views.1", "Partition 1"),
    ("metadata", "epoch-7", "123", "-456"),
    ("startpoint", "kafka.page-views.0", "Partition 0", "specific 42"),
    ("startpoint", "kafka.page-views.1", "Partition 1", "timestamp 1700000000000"),
}


def test_samza_bootstraps_the_coordinator_stream_that_grete_wrote(
    stream_log: KafkaKeyedLog, config: dict[str, str], tmp_path: Path
) -> None:
    fence = Fence("job", 1)
    stream = CoordinatorStream(stream_log, SystemClock(), source="job-runner", fence=fence)
    write_all(stream, stream_log, config, fence)
    abort_one(stream_log, stream)
    lines = set(run_samza("read-coordinator-stream", config, tmp_path))
    print(*sorted(lines), sep="\n")
    assert {line for line in lines if line[0] != "config"} == EXPECTED
    read = {line[1]: line[2] if len(line) > 2 else "" for line in lines if line[0] == "config"}
    assert read == {**config, "text": 'a "quoted" ä漢 text', "empty": ""}


def abort_one(log: KafkaKeyedLog, stream: CoordinatorStream) -> None:
    """Leave a record of an aborted append behind, whose value no reader may use."""

    class Aborted(Exception):
        pass

    def abort(_: int) -> None:
        raise Aborted

    entry = stream.entry("set-config", "text", {"value": "aborted"})
    writer = log._writer("job")
    with pytest.raises(Aborted):
        writer.write(
            Append([entry], AppendOrigin(1, "aborted", "job"), time.time_ns() // 1_000_000),
            time.monotonic() + patient(30),
            abort,
        )


def test_grete_bootstraps_the_coordinator_stream_that_samza_wrote(
    stream_log: KafkaKeyedLog, config: dict[str, str], tmp_path: Path
) -> None:
    run_samza("write-coordinator-stream", config, tmp_path)
    stream = CoordinatorStream(stream_log, SystemClock(), source="job-runner")
    found = stream.config()
    print(*sorted(found.items()), sep="\n")
    assert found == {
        **config,
        "written.by": "samza 1.8.0",
        "text": 'a "quoted" ä漢 text\n\ttab',
        "empty": "",
        "overwritten": "second",
    }
    assert LocalityManager(stream).read_locality() == {"0": "host-a"}
    assert ChangelogMapping(stream).read() == {TASKS[0]: 0, TASKS[1]: 1}
    assignments = TaskAssignments(stream)
    assert assignments.read() == {TASKS[0]: "0", TASKS[1]: "1"}
    assert assignments.modes() == dict.fromkeys(TASKS, TaskMode.ACTIVE)
    assert assignments.ssps() == {TASKS[0]: (SSPS[0],), TASKS[1]: (SSPS[1],)}
    metadata = JobCoordinatorMetadataManager(stream, "NON_YARN").read()
    assert metadata == JobCoordinatorMetadata("epoch-7", "123", "-456")
    fan_outs = StartpointManager(stream_log).fan_out(
        {TASKS[0]: [SSPS[0]], TASKS[1]: [SSPS[1]]}, time.time_ns() // 1_000_000
    )
    assert fan_outs[TASKS[0]][SSPS[0]].offset == "42"
    assert fan_outs[TASKS[1]][SSPS[1]].timestamp_ms == 1_700_000_000_000
    assert not stream.quarantined


def test_each_reads_the_checkpoints_of_the_other_and_the_later_one_wins(
    checkpoint_log: KafkaKeyedLog, config: dict[str, str], tmp_path: Path
) -> None:
    commits = {
        task: TaskCommit({SSPS[n]: str(40 + n)}, "lineage", n, "token") for n, task in enumerate(TASKS)
    }
    applied = applied_entry(TASKS[0], Applied({SSPS[0]: 1_700_000_000_000}), grouper=GROUPER)
    checkpoint_log.append([*commit_entries(commits, grouper=GROUPER), applied], fence=Fence("container", 1))
    both = {**config, "task.checkpoint.read.versions": "2,1"}
    for version, reading in (("v1", config), ("v2", both)):
        assert set(run_samza("read-checkpoints", reading, tmp_path)) == {
            ("checkpoint", version, task, f"kafka.page-views.{n}", str(40 + n))
            for n, task in enumerate(TASKS)
        }
    assert read_commits(checkpoint_log.read()) == commits
    run_samza("write-checkpoints", config, tmp_path)
    found = read_commits(checkpoint_log.read())
    print(*sorted(found.items()), sep="\n")
    assert found == {task: TaskCommit({SSPS[n]: f"10{n}"}) for n, task in enumerate(TASKS)}
