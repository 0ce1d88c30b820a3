"""A job that is to start elsewhere: what it reads then, what its stores hold, and that it happens once.

The jobs count the messages of each key and send every count, so what is read again shows in the outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from grete.checkpoint.applied_startpoints import read_applied
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import read_commits
from grete.container import checkpoints, rewind
from grete.container.assignment import Assignment, parse_assignment
from grete.errors import Fenced, JobError, OffsetOutOfRange
from grete.metadata.startpoint_state import state_entry
from grete.metadata.startpoints import startpoint_entry, startpoint_key
from grete.model.fence import Fence
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.model.streams import StreamPolicy
from grete.systems.local.compactor import CompactionLimits
from grete.systems.local.housekeeping import Housekeeper
from grete.systems.local.system import LocalSystem
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest
from grete.testing.job_model import assignments_of
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job
from grete.wire import container_protocol as protocol

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
}
SSP, TASK = SystemStreamPartition("local", "in", 0), TaskName("Partition 0")


def ask(
    job: JobUnderTest,
    startpoint: Startpoint,
    state: StateRequest | None = None,
    ssp: SystemStreamPartition = SSP,
) -> None:
    stream = job.coordinator_stream()
    entries = [startpoint_entry(startpoint_key(ssp, TASK), startpoint)]
    if state is not None:
        entries.append(state_entry(stream, TASK, state))
    stream.append(entries)


def specific(job: JobUnderTest, offset: int) -> Startpoint:
    return Startpoint(StartpointKind.SPECIFIC, job.clock.wall_ms(), offset=str(offset))


def send(job: JobUnderTest, keys: str) -> None:
    """A message a letter, a second apart."""
    for key in keys:
        job.clock.advance(1)
        job.send("local.in", 0, key=key, partition=0)


def ran(job: JobUnderTest, keys: str) -> list[tuple[str, int]]:
    """Send these, run, and say what is new in the output."""
    before = len(job.outputs("local.out"))
    send(job, keys)
    job.run()
    return [(str(one.key), int(one.message)) for one in job.outputs("local.out")[before:]]


def committed(job: JobUnderTest) -> Mapping[SystemStreamPartition, str]:
    log = job._system.checkpoint_log(checkpoint_log_name(JobId("test")))
    return read_commits(log.read())[TASK].offsets


@pytest.fixture
def job(start_job: StartJob) -> JobUnderTest:
    """Batches "ab", "ac", "ad": a is counted three times; the changelog has six records."""
    made = start_job(CountingTask, CONFIG)
    assert [ran(made, keys) for keys in ("ab", "ac", "ad")] == [
        [("a", 1), ("b", 1)],
        [("a", 2), ("c", 1)],
        [("a", 3), ("d", 1)],
    ]
    return made


def test_oldest_reads_everything_again_and_keeps_the_stores(job: JobUnderTest) -> None:
    ask(job, Startpoint(StartpointKind.OLDEST, job.clock.wall_ms()))
    job.restart()
    assert ran(job, "") == [("a", 4), ("b", 2), ("a", 5), ("c", 2), ("a", 6), ("d", 2)]


def test_a_specific_offset_is_the_next_to_be_read(job: JobUnderTest) -> None:
    ask(job, specific(job, 4))
    job.restart()
    assert ran(job, "") == [("a", 4), ("d", 2)]


def test_upcoming_skips_what_was_not_processed(job: JobUnderTest) -> None:
    send(job, "xyz")
    ask(job, Startpoint(StartpointKind.UPCOMING, job.clock.wall_ms()))
    job.restart()
    assert ran(job, "e") == [("e", 1)]


def test_a_timestamp_is_the_first_record_from_then_on(job: JobUnderTest) -> None:
    at_ms = job.clock.wall_ms() - 1000  # the messages are a second apart: the last but one
    ask(job, Startpoint(StartpointKind.TIMESTAMP, job.clock.wall_ms(), timestamp_ms=at_ms))
    job.restart()
    assert ran(job, "") == [("a", 4), ("d", 2)]
    ask(job, Startpoint(StartpointKind.TIMESTAMP, job.clock.wall_ms() + 1, timestamp_ms=at_ms + 10**9))
    job.restart()
    assert ran(job, "e") == [("e", 1)], "after the last record it is upcoming"


def test_an_applied_startpoint_is_never_applied_again_however_often_the_job_dies(job: JobUnderTest) -> None:
    ask(job, specific(job, 5))
    job.restart()  # applied, and killed before anything was processed
    assert committed(job) == {SSP: "4"}
    job.restart()
    assert ran(job, "") == [("d", 2)]
    job.restart()
    assert ran(job, "") == []


def test_discard_starts_with_empty_stores_on_every_copy(job: JobUnderTest) -> None:
    now_ms = job.clock.wall_ms()
    ask(job, Startpoint(StartpointKind.OLDEST, now_ms), StateRequest(StateChoice.DISCARD, now_ms))
    job.restart()
    assert job.store("counts", TASK) == {}
    assert ran(job, "") == [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3), ("d", 1)]
    job.restart(lose_stores=True)
    assert job.store("counts", TASK) == {"a": 3, "b": 1, "c": 1, "d": 1}


@pytest.mark.parametrize("lose_stores", [False, True])
def test_restore_brings_the_stores_back_to_where_they_stood(job: JobUnderTest, lose_stores: bool) -> None:
    now_ms = job.clock.wall_ms()
    ask(job, specific(job, 2), StateRequest(StateChoice.RESTORE, now_ms, {"counts": 2}))
    job.restart(lose_stores=lose_stores)
    assert job.store("counts", TASK) == {"a": 1, "b": 1}
    assert ran(job, "") == [("a", 2), ("c", 1), ("a", 3), ("d", 1)]
    assert job.store("counts", TASK) == {"a": 3, "b": 1, "c": 1, "d": 1}


def test_restore_can_go_forward_again_to_state_that_was_left(job: JobUnderTest) -> None:
    now_ms = job.clock.wall_ms()
    ask(job, Startpoint(StartpointKind.OLDEST, now_ms), StateRequest(StateChoice.DISCARD, now_ms))
    job.restart()
    assert job.store("counts", TASK) == {}
    ask(job, specific(job, 6), StateRequest(StateChoice.RESTORE, now_ms + 1, {"counts": 6}))
    stream = job.coordinator_stream()
    stream.append(
        [startpoint_entry(startpoint_key(SSP, TASK), Startpoint(StartpointKind.SPECIFIC, now_ms + 1, "6"))]
    )
    job.restart()
    assert job.store("counts", TASK) == {"a": 3, "b": 1, "c": 1, "d": 1}


def test_state_that_was_asked_for_with_another_startpoint_is_left_alone(job: JobUnderTest) -> None:
    ask(job, specific(job, 4), StateRequest(StateChoice.DISCARD, job.clock.wall_ms() - 1))
    job.restart()
    assert ran(job, "") == [("a", 4), ("d", 2)]


def test_an_ssp_that_was_not_asked_for_goes_on_where_it_was(start_job: StartJob) -> None:
    grouper = "org.apache.samza.container.grouper.stream.AllSspToSingleTaskGrouperFactory"
    config = {**CONFIG, "job.systemstreampartition.grouper.factory": grouper}
    job = start_job(CountingTask, config, partitions={"local.in": 2})
    (task,) = job.model.tasks
    job.send("local.in", 0, key="x", partition=1)
    assert sorted(ran(job, "a")) == [("a", 1), ("x", 1)]
    startpoint = Startpoint(StartpointKind.OLDEST, job.clock.wall_ms())
    job.coordinator_stream().append([startpoint_entry(startpoint_key(SSP, task), startpoint)])
    job.restart()
    assert ran(job, "") == [("a", 2)]


def test_a_startpoint_that_retention_overtook_stops_the_job_with_the_missing_range(job: JobUnderTest) -> None:
    ask(job, specific(job, 1))
    drop_before(job._system, 4)
    with pytest.raises(OffsetOutOfRange, match=r"from 1 to before 4 are gone.*grete startpoint delete"):
        job.restart()
    assert committed(job) == {SSP: "5"}


def drop_before(system: LocalSystem, offset: int) -> None:
    """Retention of the first partition of `in`."""
    with system.file.transaction() as connection:
        connection.execute(
            "UPDATE partitions SET oldest = ? WHERE partition = 0 AND stream = "
            "(SELECT id FROM streams WHERE name = 'in')",
            (offset,),
        )


def test_a_checkpoint_that_retention_overtook_stops_the_job_unless_the_stream_is_reset(
    job: JobUnderTest,
) -> None:
    job.kill()
    send(job, "ee")
    drop_before(job._system, 7)
    with pytest.raises(OffsetOutOfRange, match=r"up to offset 5.*from 6 to before 7 are gone.*rewind.*reset"):
        job.start()
    job.restart(config={"streams.in.samza.reset.offset": "true"})
    assert ran(job, "") == [("e", 1)]


def test_a_checkpoint_past_the_end_says_that_the_stream_is_another_one(job: JobUnderTest) -> None:
    job.stop()
    job.set_checkpoint(TASK, {str(SSP): 9})
    with pytest.raises(OffsetOutOfRange, match="from 6 to before 10 are not there"):
        job.start()


def test_a_reset_stream_is_read_from_its_default_although_there_is_a_checkpoint(job: JobUnderTest) -> None:
    job.restart(config={"streams.in.samza.reset.offset": "true"})
    assert ran(job, "")[:2] == [("a", 4), ("b", 2)]


def test_state_whose_changelog_was_compacted_is_not_restored_and_the_startpoint_stays(
    job: JobUnderTest,
) -> None:
    now_ms = job.clock.wall_ms()
    policy = StreamPolicy("test-1-counts-changelog")
    limits = CompactionLimits(min_dirty_bytes=1)
    keeper = Housekeeper(job._system, [policy], [], job.clock, limits)
    while keeper.step():
        pass
    ask(job, specific(job, 4), StateRequest(StateChoice.RESTORE, now_ms, {"counts": 4}))
    with pytest.raises(JobError, match=r"2 of the 4 records .* removed by compaction.*--state keep"):
        job.restart()
    assert committed(job) == {SSP: "5"}


def assignment_of(job: JobUnderTest, startpoint: Startpoint, state: StateRequest | None = None) -> Assignment:
    """The assignment of the container that starts next."""
    ask(job, startpoint, state)
    job._epoch += 1
    (made,) = assignments_of(job.model, job._epoch, job._pending_starts())
    return made


def test_a_container_that_was_succeeded_applies_nothing(job: JobUnderTest) -> None:
    late = assignment_of(job, specific(job, 0))
    job._system.raise_fence([Fence(late.fence.scope, late.epoch + 1)])
    target = checkpoints.commit_target(late, job._system, job.clock)
    with pytest.raises(Fenced):
        rewind.apply_startpoints(late, job._system, target, checkpoints.committed(late, job._system))
    assert committed(job) == {SSP: "5"}


def test_a_container_looks_itself_what_it_has_applied_already(job: JobUnderTest) -> None:
    made = assignment_of(job, specific(job, 2))
    target = checkpoints.commit_target(made, job._system, job.clock)
    first = rewind.apply_startpoints(made, job._system, target, checkpoints.committed(made, job._system))
    log = job._system.checkpoint_log(target.checkpoint_log)
    end = log.end()
    again = rewind.apply_startpoints(made, job._system, target, checkpoints.committed(made, job._system))
    assert again.commits == first.commits
    assert first.asked_ms == made.tasks[0].pending.startpoints[SSP].created_ms
    assert again.asked_ms is None, "no rewind: it was one of the incarnation before"
    assert log.end() == end


def test_what_is_pending_travels_in_the_coordinators_document(job: JobUnderTest) -> None:
    state = StateRequest(StateChoice.RESTORE, job.clock.wall_ms(), {"counts": 2})
    made = assignment_of(job, specific(job, 2), state)
    (task,) = made.tasks
    ssps = [{"system": s.system, "stream": s.stream, "partition": s.partition} for s in task.ssps]
    document = {
        "job": {"name": made.job.name, "id": made.job.id},
        "container_id": made.container_id,
        "epoch": made.epoch,
        "config": dict(made.settings.raw),
        "tasks": [
            {
                "name": task.name,
                "ssps": ssps,
                "changelog_partition": task.changelog_partition,
                "pending": protocol.document(protocol.PendingRequest.of(task.pending)),
            }
        ],
    }
    assert parse_assignment(json.loads(json.dumps(document)), Path.cwd()) == made


def test_offsets_acknowledgement_and_stores_change_in_one_transaction(
    job: JobUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = job.clock.wall_ms()
    made = assignment_of(job, specific(job, 0), StateRequest(StateChoice.DISCARD, now_ms))
    target = checkpoints.commit_target(made, job._system, job.clock)
    before = checkpoints.committed(made, job._system)
    monkeypatch.setattr("grete.systems.local.system.failpoint", stop_in_transaction)
    with pytest.raises(JobError, match="stopped"):
        rewind.apply_startpoints(made, job._system, target, before)
    log = job._system.checkpoint_log(checkpoint_log_name(JobId("test")))
    assert checkpoints.committed(made, job._system) == before
    assert read_applied(log.read()) == {}
    assert job._system.offsets("test-1-counts-changelog")[0].upcoming == "6"


def stop_in_transaction(name: str) -> None:
    if name == "commit.in-transaction":
        raise JobError("stopped")


def test_a_startpoint_that_means_where_the_task_is_only_notes_that_it_was_applied(job: JobUnderTest) -> None:
    made = assignment_of(job, specific(job, 6))
    before = checkpoints.committed(made, job._system)
    target = checkpoints.commit_target(made, job._system, job.clock)
    assert rewind.apply_startpoints(made, job._system, target, before) == (before, None)
    assert rewind.applied_startpoints(job._system, target.checkpoint_log)[TASK].created_ms[SSP] > 0
