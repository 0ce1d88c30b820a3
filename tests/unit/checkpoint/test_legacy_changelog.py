"""Jobs that come from a Samza older than 0.10 keep each task's changelog partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.checkpoint.legacy_changelog import legacy_mapping
from grete.checkpoint.names import checkpoint_log_name
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordinator.plan import Planner
from grete.errors import JobError
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.assignments import ChangelogMapping
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import JobId
from grete.model.messages import SET_MIGRATION_INFO
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem

JOB = JobId("job")
KEY = b'{"type":"changelog-partition-mapping"}'
MAPPING = b'{"Partition 1":0,"Partition 0":2,"gone for long":5}'
FILE = "job-partition-mapping-changelog-partition-mapping"


@pytest.fixture
def stream() -> CoordinatorStream:
    return CoordinatorStream(MemoryKeyedLog(SystemClock()), SystemClock(), source="test")


@pytest.fixture
def planner(home: Path, stream: CoordinatorStream, system: LocalSystem) -> Iterator[Planner]:
    system.create_stream(StreamSpec("in", 3))
    with ExitStack() as stack:
        yield Planner(JOB, home, stream, SystemClock(), stack)


def config(home: Path) -> dict[str, str]:
    return {"job.name": "job", "task.inputs": "local.in", "task.checkpoint.path": str(home)}


@pytest.mark.parametrize("where", ["log", "file"])
def test_tasks_keep_the_changelog_partitions_that_the_old_form_gave_them(
    planner: Planner, stream: CoordinatorStream, system: LocalSystem, home: Path, where: str
) -> None:
    if where == "log":
        system.checkpoint_log(checkpoint_log_name(JOB)).append([Entry(KEY, b"{}"), Entry(KEY, MAPPING)])
    else:
        (home / FILE).write_bytes(MAPPING)
    planner.plan(Settings.of(config(home)))
    expected = {"Partition 0": 2, "Partition 1": 0, "Partition 2": 6, "gone for long": 5}
    assert ChangelogMapping(stream).read() == expected
    note = stream.messages(SET_MIGRATION_INFO)["migration-info"]
    assert dict(note.values or {}) == {"CheckpointMigration09to10": "true"}


def test_what_the_stream_has_counts_and_the_old_form_is_read_once(
    planner: Planner, stream: CoordinatorStream, home: Path
) -> None:
    planner.plan(Settings.of(config(home)))
    (home / FILE).write_bytes(MAPPING)
    planner.plan(Settings.of(config(home)))
    assert ChangelogMapping(stream).read() == {f"Partition {number}": number for number in range(3)}
    assert stream.messages(SET_MIGRATION_INFO) == {}


def test_a_job_without_the_old_form_has_none(stream: CoordinatorStream) -> None:
    foreign = [Entry(b'{"type":"checkpoint"}', b"1"), Entry(b'"changelog-partition-mapping', b"2")]
    log = MemoryKeyedLog(SystemClock())
    log.append(foreign)
    assert legacy_mapping(stream, log.read(), Settings().task, JOB) == {}
    log.append([Entry(KEY, MAPPING), Entry(KEY, None)])
    assert legacy_mapping(stream, log.read(), Settings().task, JOB) == {}


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        (b'{"Partition 0":', "cannot be used"),
        (b"[1]", "no JSON object"),
        (b'{"Partition 0":"1"}', "'1'"),
        (b'{"Partition 0":-1}', "-1"),
        (b'{"Partition 0":true}', "True"),
        (b'{"Partition 0":1,"Partition 1":1}', "two tasks have the same partition"),
    ],
)
def test_a_mapping_that_cannot_be_used_stops_the_start_with_the_way_out(
    planner: Planner, stream: CoordinatorStream, home: Path, mapping: bytes, why: str
) -> None:
    (home / FILE).write_bytes(mapping)
    with pytest.raises(JobError, match=why) as refused:
        planner.plan(Settings.of(config(home)))
    assert "another job.id" in str(refused.value)
    assert ChangelogMapping(stream).read() == {}
