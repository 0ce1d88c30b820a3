"""Shares that commit where they run, one transaction a slot: exactly once, whatever Spark repeats."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.kafka.kafka_job import Job

from grete import failpoints
from grete.clock import SystemClock
from grete.container import checkpoints
from grete.errors import CheckpointsMoved, Fenced, LogError, ProcessingError
from grete.model.startpoint import PendingStart, Startpoint, StartpointKind, StateChoice, StateRequest
from grete.systems.base import Message
from grete.tasks.runtime import TaskWorkers
from grete.testing.kafka_broker import KafkaCluster

MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(kafka: KafkaCluster, tmp_path: Path) -> Iterator[MakeJob]:
    with ExitStack() as stack:

        def make(**options: object) -> Job:
            job = Job(kafka.bootstrap, tmp_path, **options)  # type: ignore[arg-type]
            stack.callback(job.close)
            return job

        yield make


def test_commits_follow_each_other(make_job: MakeJob) -> None:
    job = make_job()
    container = job.container(1)
    worker = container.worker()
    for _ in range(3):
        job.fill(20)
        outcome = container.run(worker)
        assert outcome.records == 20
        assert outcome.commit_s > 0.001, "Kafka's commit, and not only what the driver remembers of it"
    job.assert_exactly_once()


def test_a_checkpoint_names_the_marker_at_which_an_input_ends_also_when_there_is_nothing_else(
    make_job: MakeJob,
) -> None:
    """Else lag is never 0, and what retention removes to the end seems to be lost."""
    job = make_job()
    container = job.container(1)
    worker = container.worker()
    job.system.append(job.input, [Message(b"k", b"{}", SystemClock().wall_ms(), p) for p in (0, 1)])
    container.run(worker)
    written = len(list(job.records(job.output)))
    append_and_abort(job, 0)
    container.run(worker)
    ends = {p: int(offsets.upcoming) for p, offsets in job.system.offsets(job.input).items()}
    known = checkpoints.committed(job.assignment(1), job.system)
    reached = {ssp.partition: int(last) for commit in known.values() for ssp, last in commit.offsets.items()}
    assert reached == {p: end - 1 for p, end in ends.items()}
    assert len(list(job.records(job.output))) == written == 2


def append_and_abort(job: Job, partition: int) -> None:
    """A transaction that is aborted, and seen to be."""
    servers = job.config["systems.kafka.producer.bootstrap.servers"]
    producer = Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(job.input, b"{}", b"never", partition)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    assert b"never" not in {record["key"] for record in job.records(job.input)}


def test_the_next_container_goes_on_and_the_one_before_is_refused(make_job: MakeJob) -> None:
    job = make_job()
    job.fill(20)
    old = job.container(1)
    old_worker = old.worker()
    old.run(old_worker)
    late = old.share(old_worker, 0)
    job.fill(10)
    new = job.container(2)
    with pytest.raises(Fenced):
        late.step(10)  # its id is open, and the brokers refuse it
    with pytest.raises(Fenced):
        old.share(old.worker(), 1)  # a worker that opens the id only now
    assert new.run(new.worker()).records == 10
    job.assert_exactly_once()


def test_what_another_run_of_the_container_commits_meanwhile_is_noticed_and_nothing_is_written(
    make_job: MakeJob,
) -> None:
    """Of an epoch that was taken for ended while a worker of it goes on, whoever was wrong about that."""
    job = make_job()
    job.fill(20)
    given_up = job.container(1)
    again = job.container(1, ended=given_up.ended)
    given_up.run(given_up.worker(), slots=[0])
    with pytest.raises(CheckpointsMoved, match="has committed Partition 0 at offset"):
        again.share(again.worker(), 0)
    third = job.container(1)
    assert 0 < third.run(third.worker()).records < 20, "the other share"
    job.assert_exactly_once()


def test_an_epoch_that_was_given_up_commits_nothing_in_slots_that_the_next_one_does_not_have(
    make_job: MakeJob,
) -> None:
    """Under the same fence, whether its shares hold their slots or open them only now; and its container goes on."""
    job = make_job()
    given_up = job.container(1)
    shares = [given_up.share(given_up.worker(), slot) for slot in (0, 1)]
    again = job.container(1, slots_at_most=1)
    only = again.worker()
    again.run(only)
    job.fill(20)
    for share in shares:
        with pytest.raises(CheckpointsMoved, match="has begun a later epoch"):
            share.step(10)
    with pytest.raises(CheckpointsMoved, match="has begun a later epoch"):
        given_up.share(given_up.worker(), 1)
    assert again.run(only).records == 20
    job.fill(20)
    again.run(only)
    job.assert_exactly_once()


def test_the_epoch_after_one_that_has_ended_goes_on_from_what_was_reported_of_it(
    make_job: MakeJob,
) -> None:
    """And from what the log has after that."""
    job = make_job()
    job.fill(20)
    first = job.container(1)
    first.run(first.worker(), slots=[0])
    ended = first.ended
    first.run(first.worker(), slots=[1])
    second = job.container(1, ended=ended)
    assert second.epoch.known.commits == checkpoints.committed(job.assignment(1), job.system)
    job.fill(20)
    assert second.run(second.worker()).records == 20
    job.assert_exactly_once()


def test_the_share_of_the_next_epoch_goes_on_with_what_the_last_one_has_open(make_job: MakeJob) -> None:
    """Unless another process has opened the slot since: it is refused, and looks who has committed what."""
    job = make_job(config={"task.commit.groups": "1"})
    container = job.container(1)
    worker = container.worker()
    for _ in range(3):
        share = container.share(worker, 0)
        job.fill(20)
        for made in iter(lambda share=share: share.step(1), None):  # type: ignore[misc]
            container.epoch.committed(made)
        share.close()
        container = job.container(1, ended=container.ended)
        worker = TaskWorkers(container.epoch.spec, worker.system)
    share, other = container.share(worker, 0), container.worker()
    job.fill(20)
    container.run(other)
    job.fill(20)
    with pytest.raises(CheckpointsMoved, match="another attempt at slot 0"):
        share.step(10)
    container.run(other)
    job.assert_exactly_once()


def test_a_share_that_begins_again_goes_on_from_what_was_committed_and_not_reported(
    make_job: MakeJob,
) -> None:
    job = make_job()
    container = job.container(1)
    job.fill(20)
    first = container.share(container.worker(), 0)
    made = first.step(10)
    assert made is not None
    again = container.share(container.worker(), 0)
    assert again.next_offsets == made.next_offsets
    container.run(container.worker())
    job.assert_exactly_once()


def test_an_attempt_that_was_taken_for_lost_and_comes_late_commits_nothing(make_job: MakeJob) -> None:
    """It had begun before the second attempt, and what it processed was committed by that meanwhile."""
    job = make_job()
    container = job.container(1)
    lost = container.share(container.worker(), 0)
    second = container.worker()
    job.fill(20)
    assert container.run(second).records == 20
    job.fill(20)
    with pytest.raises(CheckpointsMoved, match="another attempt at slot 0"):
        lost.step(10)
    container.run(second)
    job.assert_exactly_once()


def test_attempts_that_take_a_slot_from_each_other_double_nothing_and_lose_nothing(make_job: MakeJob) -> None:
    """Each that has lost the slot looks, and ends if the other has committed; the next one goes on from there."""
    job = make_job(config={"task.commit.groups": "1"})
    container = job.container(1)
    for _ in range(3):
        one = container.share(container.worker(), 0)
        two = container.share(container.worker(), 0)
        job.fill(20)
        assert one.step(10) is not None, "nothing was committed meanwhile, so it takes the slot again"
        job.fill(20)
        with pytest.raises(CheckpointsMoved, match="another attempt at slot 0"):
            two.step(10)
    container.run(container.worker())
    job.assert_exactly_once()


@pytest.mark.parametrize(
    "point", ["executor.before-produce", "executor.flushed", "executor.before-commit", "executor.committed"]
)
def test_an_attempt_that_fails_anywhere_is_made_up_for(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    job = make_job()
    container = job.container(1)
    worker, other = container.worker(), container.worker()
    job.fill(20)
    container.run(worker)
    job.fill(20)
    monkeypatch.setattr(failpoints, "_armed", failpoints._parse(f"{point}:raise"))
    with pytest.raises(LogError, match=point):
        container.run(worker, slots=[0])
    container.run(other)
    job.fill(20)
    container.run(other)
    job.assert_exactly_once()


def test_work_of_which_one_share_has_committed_is_finished_after_a_restart(make_job: MakeJob) -> None:
    job = make_job()
    job.fill(40)
    first = job.container(1)
    first.run(first.worker(), slots=[0])
    second = job.container(2)
    worker = second.worker()
    assert second.run(worker).records < 40
    job.fill(20)
    second.run(worker)
    job.assert_exactly_once()


def test_stores_come_back_from_their_changelogs(make_job: MakeJob) -> None:
    job = make_job()
    job.fill(40)
    one = job.container(1)
    one.run(one.worker())
    shutil.rmtree(job.home / "jobs")
    job.fill(20)
    two = job.container(2)
    two.run(two.worker())
    job.assert_exactly_once()


def test_an_output_larger_than_its_topic_takes_names_its_message(make_job: MakeJob) -> None:
    job = make_job()
    job.config[f"streams.{job.output}.max.message.bytes"] = "20000"
    job.fill(10)
    job.send("key0", json.dumps({"filler": "x" * 20_000}).encode(), partition=1)
    container = job.container(1)
    with pytest.raises(
        ProcessingError, match=rf"kafka.{job.input}.1 offset 4: .*larger than kafka.{job.output}"
    ):
        container.run(container.worker())
    assert "key1" not in job.counts()  # the other slot has committed its share


def test_a_poison_message_goes_to_the_dead_letters_in_the_same_transaction(make_job: MakeJob) -> None:
    job = make_job(
        config={"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "kafka.dead"}
    )
    job.fill(10)
    job.send("key0", b"{not json", partition=0)
    container = job.container(1)
    assert container.run(container.worker()).dead_letters == 1
    [letter] = [json.loads(one["value"]) for one in job.records("dead") if job.input in one["value"].decode()]
    assert letter["ssp"] == f"kafka.{job.input}.0"
    job.assert_exactly_once()


def test_a_message_that_cannot_be_read_late_in_a_long_transaction_leaves_nothing_of_it(
    make_job: MakeJob,
) -> None:
    """Of thousands of records and many polls before it, too; the one before it in its share stays."""
    job = make_job()
    container = job.container(1)
    share = container.share(container.worker(), 0, commit_s=60.0)
    job.fill(14)
    assert share.step(10) is not None
    before = job.counts()
    job.fill(3_500)
    job.send("key0", b"{not json", partition=0)
    with pytest.raises(ProcessingError, match=rf"{job.name}.{job.input}.0 offset "):
        next(made for made in iter(lambda: share.step(10), object()) if made is not None)
    assert job.counts() == before
    job.config["task.poison.policy"] = "dead-letter"
    job.fill(14)
    again = job.container(2)
    assert again.run(again.worker()).dead_letters == 1
    job.assert_exactly_once()


def test_a_transaction_begins_with_its_commit_however_long_records_were_processed_before(
    make_job: MakeJob, caplog: pytest.LogCaptureFixture
) -> None:
    """So neither a long `task.commit.ms` nor a slow task meets the brokers' timeout."""
    job = make_job(config={"task.commit.transaction.timeout.ms": "2000", "task.commit.groups": "1"})
    container = job.container(1)
    share = container.share(container.worker(), 0, commit_s=4.0)
    job.fill(14)
    assert share.step(10) is not None
    job.fill(14)
    began_s = time.monotonic()
    made = share.step(10)
    assert made is not None
    assert made.commits == 1
    assert time.monotonic() - began_s > 3
    assert "not committed" not in caplog.text
    container.epoch.committed(made)
    job.assert_exactly_once()


def test_stores_come_back_from_a_compacted_changelog(make_job: MakeJob) -> None:
    """Shadowed records are gone, their offsets are gaps, and a file that was behind them is rebuilt or caught up."""
    compact_at_once = {
        "stores.counts.changelog.kafka.min.cleanable.dirty.ratio": "0.01",
        "stores.counts.changelog.kafka.segment.ms": "100",
        "stores.counts.changelog.min.compaction.lag.ms": "0",
    }
    job = make_job(config=compact_at_once)
    container = job.container(1)
    worker = container.worker()
    batches = 0
    while batches < 3 or len(list(job.records(job.changelog))) >= 7 * batches:
        job.fill(14)
        container.run(worker)
        batches += 1
        assert batches < 200, "the broker does not compact"
    shutil.rmtree(job.home / "jobs")
    job.fill(14)
    two = job.container(2)
    two.run(two.worker())
    job.assert_exactly_once()


def test_a_rewind_brings_the_stores_back_with_the_offsets(make_job: MakeJob) -> None:
    """From a batch on everything is done again: the same outputs once more, from the same state."""
    job = make_job()
    one = job.container(1)
    worker = one.worker()
    job.fill(14)
    one.run(worker)
    then = checkpoints.committed(job.assignment(1), job.system)
    job.fill(14)
    one.run(worker)
    tasks = []
    for task in job.assignment(2).tasks:
        commit = then[task.name]
        starts = {
            ssp: Startpoint(StartpointKind.SPECIFIC, 5, str(int(commit.offsets[ssp]) + 1))
            for ssp in task.ssps
        }
        request = StateRequest(StateChoice.RESTORE, 5, commit.store_positions)
        tasks.append(replace(task, pending=PendingStart(starts, request)))
    two = job.container(2, assignment=replace(job.assignment(2), tasks=tuple(tasks)))
    two.run(two.worker())
    assert job.counts() == {f"key{key}": [1, 2, 3, 4, 3, 4] for key in range(7)}
