"""A job whose checkpoints Samza wrote: its stores begin where Samza committed last, not where its changelogs end."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.config.settings import Settings
from grete.errors import JobError
from grete.keyed_log.base import Entry, KeyedLog
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamPolicy
from grete.systems.local.compactor import CompactionLimits
from grete.systems.local.housekeeping import Housekeeper
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job
from grete.wire import checkpoint_json

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
}
TASK, JOB = TaskName("Partition 0"), JobId("test")
SSP = SystemStreamPartition("local", "in", 0)
CHANGELOG = SystemStreamPartition("local", Settings.of(CONFIG).store("counts").changelog_stream(JOB), 0)
ANOTHER = SystemStreamPartition("local", "another-changelog", 0)
ID = "1795301207701-222492"
ALL_THERE_IS = [4, 2, 5, 2]
"""The counts of "acad" when it comes again, in addition to what the changelog holds of it."""
KAFKA_STATE = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"
RETAIN = "task.transactional.state.retain.existing.state"
RESTORE = "task.transactional.state.restore.enabled"


@pytest.fixture
def job(start_job: StartJob) -> JobUnderTest:
    """A job that processed "abacad": its changelog has six records, `a` three times. It does not run."""
    made = start_job(CountingTask, CONFIG)
    for key in "abacad":
        made.send("local.in", 0, key=key, partition=0)
        made.run()
    made.kill()
    return made


def log(job: JobUnderTest) -> KeyedLog:
    return job._system.checkpoint_log(checkpoint_log_name(JOB))


def key(kind: str) -> bytes:
    return checkpoint_json.encode_log_key(Settings.of(CONFIG).job.ssp_grouper, TASK, kind)


def version_1(
    inputs: Mapping[SystemStreamPartition, str], mark: str | None, of: SystemStreamPartition = CHANGELOG
) -> Entry:
    """A commit of Samza: `mark` is the changelog's last offset as text, None leaves it out."""
    marks = {} if mark is None else {of: f"{ID}:{mark}"}
    return Entry(key("checkpoint"), checkpoint_json.encode_v1({**inputs, **marks}))


def version_2(inputs: Mapping[SystemStreamPartition, str], mark: str | None) -> Entry:
    markers = {KAFKA_STATE: {"counts": checkpoint_json.encode_marker(CHANGELOG, mark)}}
    return Entry(key("checkpoint-v2"), checkpoint_json.encode_v2(ID, inputs, markers))


def counted(job: JobUnderTest, config: Mapping[str, str] | None = None) -> list[int]:
    """The counts that a start without store files makes of what is left to process."""
    before = len(job.outputs("local.out"))
    job.restart(lose_stores=True, config=config).run()
    return [one.message for one in job.outputs("local.out")[before:]]


@pytest.mark.parametrize("written", [version_1, version_2])
def test_a_store_begins_at_the_mark_of_either_version(job: JobUnderTest, written: type[version_1]) -> None:
    log(job).append([written({SSP: "1"}, "1")])
    assert counted(job) == [2, 1, 3, 1]  # acad, after ab
    assert job.store("counts", TASK) == {"a": 3, "b": 1, "c": 1, "d": 1}
    assert counted(job) == []


def test_the_changelog_holds_only_what_is_committed_once_the_job_was_taken_over(job: JobUnderTest) -> None:
    log(job).append([version_1({SSP: "1"}, "1")])
    job.restart(lose_stores=True).kill()
    changes: dict[bytes, bytes | None] = {}
    for _, batch in job._system.read(CHANGELOG.stream, 0, 0):
        changes.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    assert {k: v for k, v in changes.items() if v is not None} == {b"a": b"1", b"b": b"1"}
    commit = read_commits(log(job).read())[TASK]
    assert commit.offsets == {SSP: "1"}
    assert not commit.changelog_marks


def test_a_mark_at_the_end_adds_nothing_to_the_changelog(job: JobUnderTest) -> None:
    log(job).append([version_1({SSP: "5"}, "5")])
    assert counted(job) == []
    assert job._system.offsets(CHANGELOG.stream)[0].upcoming == "6"
    job.send("local.in", 0, key="a", partition=0)
    job.run()
    assert job.messages("local.out")[-1] == 4


@pytest.mark.parametrize(
    ("mark", "of", "config", "counts"),
    [
        ("null", CHANGELOG, {}, [1, 1, 2, 1]),
        ("null", CHANGELOG, {RESTORE: "false"}, ALL_THERE_IS),
        ("1", CHANGELOG, {RESTORE: "false"}, ALL_THERE_IS),
        ("6", CHANGELOG, {RETAIN: "false"}, ALL_THERE_IS),
        ("1", ANOTHER, {}, ALL_THERE_IS),
        ("1", ANOTHER, {RETAIN: "false"}, [1, 1, 2, 1]),
        (None, CHANGELOG, {RETAIN: "false"}, ALL_THERE_IS),
    ],
    ids=[
        "nothing was in it",
        "nothing was in it, not wanted",
        "not wanted",
        "out of its range",
        "nothing noted",
        "nothing noted or retained",
        "written by a tool",
    ],
)
def test_where_the_mark_says_nothing_the_settings_of_samza_do(
    job: JobUnderTest, mark: str | None, of: SystemStreamPartition, config: dict[str, str], counts: list[int]
) -> None:
    log(job).append([version_1({SSP: "1"}, mark, of)])
    assert counted(job, config) == counts


def test_what_was_never_committed_is_emptied_where_samza_would(job: JobUnderTest) -> None:
    tombstones = [Entry(key(kind), None) for kind in ("checkpoint", "checkpoint-v2", "grete-commit")]
    log(job).append(tombstones)
    assert counted(job, {RETAIN: "false"}) == [1, 1, 2, 1, 3, 1]


def test_stores_and_checkpoint_are_taken_over_in_one_transaction(
    job: JobUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(job).append([version_1({SSP: "1"}, "1")])
    with monkeypatch.context() as dying:
        dying.setattr("grete.systems.local.system.failpoint", stop_in_transaction)
        with pytest.raises(JobError, match="stopped"):
            job.restart(lose_stores=True)
    assert read_commits(log(job).read())[TASK].changelog_marks == {CHANGELOG: "1"}
    assert job._system.offsets(CHANGELOG.stream)[0].upcoming == "6"
    assert counted(job) == [2, 1, 3, 1]


def stop_in_transaction(name: str) -> None:
    if name == "commit.in-transaction":
        raise JobError("stopped")


def test_a_job_that_went_back_to_samza_for_a_while_is_taken_over_again(job: JobUnderTest) -> None:
    log(job).append([version_1({SSP: "1"}, "1")])
    assert counted(job) == [2, 1, 3, 1]
    before_these = int(job._system.offsets(CHANGELOG.stream)[0].upcoming) - 4
    job.kill()
    # input offsets as in grete's last commit, which is not to be taken for Samza's
    log(job).append([version_1({SSP: "5"}, str(before_these)), version_2({SSP: "5"}, str(before_these))])
    job.send("local.in", 0, key="a", partition=0)
    assert counted(job) == [2]


def test_the_version_that_was_written_last_counts(job: JobUnderTest) -> None:
    log(job).append([version_2({SSP: "3"}, "3"), version_1({SSP: "1"}, "1")])
    assert read_commits(log(job).read())[TASK].offsets == {SSP: "1"}
    log(job).append([version_2({SSP: "3"}, "3")])
    assert read_commits(log(job).read())[TASK] == TaskCommit({SSP: "3"}, changelog_marks={CHANGELOG: "3"})
    log(job).append([Entry(key("checkpoint-v2"), b"{")])
    assert read_commits(log(job).read())[TASK].offsets == {SSP: "1"}


def test_a_state_that_compaction_may_have_taken_is_refused_with_the_ways_out(job: JobUnderTest) -> None:
    job.send("local.in", 0, key="a", partition=0)
    job.start().run()
    job.kill()
    keeper = Housekeeper(
        job._system, [StreamPolicy(CHANGELOG.stream)], [], job.clock, CompactionLimits(min_dirty_bytes=1)
    )
    while keeper.step():
        pass
    log(job).append([version_1({SSP: "1"}, "1")])
    with pytest.raises(
        JobError,
        match=r"'counts' cannot be brought to its checkpoint: .* removed by compaction.*restore.enabled",
    ):
        job.restart(lose_stores=True)
    assert counted(job, {RESTORE: "false"}) == [5, 2, 6, 2, 7]
