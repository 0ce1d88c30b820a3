"""Which of a pipeline's records on Kafka count: the decision, the log's records, and the reader over both."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from grete.checkpoint.committed_reader import CommittedReader
from grete.checkpoint.output_commits import (
    LineageCommits,
    OutputCommits,
    RecordFate,
    Stamp,
    WriterAttempt,
    fenced_off,
)
from grete.checkpoint.own_keys import own_key
from grete.errors import ConfigError
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.model.ids import ContainerId, JobId, TaskName
from grete.testing.clock import ManualClock

JOB = JobId("words")
FIRST, SECOND, THIRD = (WriterAttempt("words-1", "0", epoch, 1) for epoch in (3, 4, 7))
GROUPER = "grouper"


def stamp(batch: int, attempt: WriterAttempt, sequence: int = 0) -> Stamp:
    return Stamp(attempt, batch, sequence)


def test_of_a_batch_that_two_attempts_wrote_the_records_of_the_one_that_committed_count() -> None:
    commits = LineageCommits("l1").with_batch(0, FIRST).with_batch(1, SECOND).with_batch(2, SECOND)
    found = OutputCommits([commits])
    assert found.verdict(stamp(0, FIRST)) is RecordFate.COMMITTED
    assert found.verdict(stamp(1, FIRST)) is RecordFate.VOID
    assert found.verdict(stamp(1, SECOND)) is RecordFate.COMMITTED
    assert found.verdict(stamp(2, SECOND)) is RecordFate.COMMITTED


def test_what_is_not_in_the_log_yet_is_pending_until_a_later_attempt_of_the_container_commits() -> None:
    commits = LineageCommits("l1").with_batch(0, FIRST)
    assert OutputCommits().verdict(stamp(0, FIRST)) is RecordFate.PENDING
    assert OutputCommits([commits]).verdict(stamp(1, FIRST)) is RecordFate.PENDING
    other = LineageCommits("l2").with_batch(0, SECOND)
    assert OutputCommits([commits, other]).verdict(stamp(1, FIRST)) is RecordFate.VOID
    assert OutputCommits([commits, other]).verdict(stamp(0, FIRST)) is RecordFate.COMMITTED
    elsewhere = LineageCommits("l3").with_batch(0, WriterAttempt("words-1", "1", 9, 1))
    assert OutputCommits([commits, elsewhere]).verdict(stamp(1, FIRST)) is RecordFate.PENDING


def test_a_container_that_was_fenced_off_commits_no_more_and_what_it_has_committed_counts() -> None:
    log = MemoryKeyedLog(ManualClock())
    log.append([LineageCommits("l1").with_batch(0, FIRST).entry(GROUPER)])
    log.append([fenced_off(JOB, ContainerId("0"), SECOND.epoch, GROUPER)])
    log.append([Entry(own_key("grete-fenced-off", TaskName("damage"), GROUPER), b"{}")])
    found = OutputCommits()
    found.read(log.read())
    assert found.verdict(stamp(0, FIRST)) is RecordFate.COMMITTED
    assert found.verdict(stamp(1, FIRST)) is RecordFate.VOID
    assert found.verdict(stamp(0, SECOND)) is RecordFate.PENDING, "it came after the fence"
    assert found.verdict(stamp(1, WriterAttempt("words-1", "1", 3, 1))) is RecordFate.PENDING, (
        "another container"
    )


def test_attempts_grow_within_an_epoch_too_and_are_read_as_they_are_written() -> None:
    again = WriterAttempt("a.b/c-1", "0", 3, 2)
    assert WriterAttempt.parse(str(again)) == again
    assert Stamp.of([("grete-stamp", str(stamp(4, again, 17)).encode())]) == stamp(4, again, 17)
    assert Stamp.of([("grete-stamp", str(Stamp(again, 4, None)).encode())]) == Stamp(again, 4, None)
    assert Stamp.of([("grete-stamp", b"damaged")]) is None
    assert WriterAttempt("words-1", "0", 3, 2) > FIRST
    assert WriterAttempt("words-1", "0", 10, 1) > WriterAttempt("words-1", "0", 9, 2)


def test_the_log_keeps_what_counts_of_every_lineage_when_it_is_compacted() -> None:
    log = MemoryKeyedLog(ManualClock())
    one = LineageCommits("l1")
    for batch in range(4):
        one = one.with_batch(batch, FIRST if batch < 2 else SECOND)
        log.append([one.entry(GROUPER), Entry(b'{"foreign":1}', b"x")])
    log.append([LineageCommits("l2").with_batch(0, THIRD).entry(GROUPER)])
    log.compact()
    found = OutputCommits()
    found.read(log.read())
    assert found.lineages == {"l1": one, "l2": LineageCommits("l2").with_batch(0, THIRD)}


class Message:
    """A message of confluent-kafka."""

    def __init__(self, value: str, where: Stamp | None, partition: int = 0) -> None:
        self.text = value
        self._stamp = where
        self._partition = partition

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "out"

    def partition(self) -> int:
        return self._partition

    def headers(self) -> list[tuple[str, bytes]] | None:
        if self._stamp is None:
            return None
        return [("own", b"x"), ("grete-stamp", str(self._stamp).encode())]


class Partition:
    topic = "out"

    def __init__(self, partition: int) -> None:
        self.partition = partition


class Topic:
    """A consumer of it: what it has in order, and nothing of a partition that rests."""

    def __init__(self, messages: list[Message], clock: ManualClock) -> None:
        self._clock = clock
        self._messages = deque(messages)
        self._resting: set[int] = set()

    def assignment(self) -> list[Partition]:
        return [Partition(0), Partition(1)]

    def pause(self, partitions: list[Partition]) -> None:
        self._resting |= {each.partition for each in partitions}

    def resume(self, partitions: list[Partition]) -> None:
        self._resting -= {each.partition for each in partitions}

    def poll(self, timeout_s: float) -> Message | None:
        for message in self._messages:
            if message.partition() not in self._resting:
                self._messages.remove(message)
                return message
        self._clock.advance(timeout_s)
        return None


def reader_of(*messages: Message) -> tuple[CommittedReader, MemoryKeyedLog]:
    clock = ManualClock()
    log = MemoryKeyedLog(clock)
    consumer: Any = Topic(list(messages), clock)
    return CommittedReader(consumer, {JOB: log}, clock), log


def texts(reader: CommittedReader) -> list[str]:
    found = []
    while (message := reader.poll(1.0)) is not None:
        made: Any = message
        found.append(made.text)
    return found


def test_records_that_could_not_be_written_twice_have_one_stamp_and_all_count() -> None:
    log, clock = MemoryKeyedLog(ManualClock()), ManualClock()
    log.append([LineageCommits("l1").with_batch(0, FIRST).with_batch(1, SECOND).entry(GROUPER)])
    sent = [(0, FIRST), (0, FIRST), (1, FIRST), (1, SECOND), (1, SECOND)]
    topic = Topic([Message(str(n), Stamp(by, batch, None)) for n, (batch, by) in enumerate(sent)], clock)
    reader = CommittedReader(topic, {JOB: log}, clock)  # type: ignore[arg-type]
    found = [reader.poll(0) for _ in range(6)]
    assert [message.text for message in found if message is not None] == ["0", "1", "3", "4"]


def test_the_reader_returns_each_record_of_committed_batches_once_and_foreign_ones_as_they_are() -> None:
    reader, log = reader_of(
        Message("half a batch", stamp(0, FIRST, 5)),
        Message("a", stamp(0, SECOND, 1)),
        Message("foreign", None),
        Message("a again", stamp(0, SECOND, 1)),
        Message("b", stamp(0, SECOND, 2)),
        Message("c", stamp(1, SECOND, 1)),
        Message("b again, late", stamp(0, SECOND, 2)),
    )
    log.append([LineageCommits("l1").with_batch(0, SECOND).with_batch(1, SECOND).entry(GROUPER)])
    assert texts(reader) == ["a", "foreign", "b", "c"]


def test_a_record_that_is_not_decided_holds_up_its_partition_and_no_other() -> None:
    reader, log = reader_of(
        Message("a", stamp(0, FIRST, 1)),
        Message("behind", None),
        Message("elsewhere", None, partition=1),
    )
    assert texts(reader) == ["elsewhere"]
    assert texts(reader) == []
    log.append([LineageCommits("l1").with_batch(0, FIRST).entry(GROUPER)])
    assert texts(reader) == ["a", "behind"]


def test_a_record_whose_container_was_succeeded_is_dropped_and_what_is_behind_comes() -> None:
    reader, log = reader_of(Message("lost", stamp(0, FIRST, 1)), Message("behind", None))
    assert texts(reader) == []
    log.append([LineageCommits("l2").with_batch(0, SECOND).entry(GROUPER)])
    assert texts(reader) == ["behind"]


def test_partitions_that_were_revoked_are_forgotten() -> None:
    reader, log = reader_of(Message("a", stamp(0, FIRST, 1)))
    assert texts(reader) == []
    gone: Any = [Partition(0)]
    reader.revoked(gone)
    log.append([LineageCommits("l1").with_batch(0, FIRST).entry(GROUPER)])
    assert texts(reader) == []


def test_jobs_whose_names_read_alike_do_not_commit_for_each_other_and_old_stamps_are_still_read() -> None:
    one, other = JobId("a-b", "1"), JobId("a", "b-1")
    assert str(one) == str(other)
    logs = {job: MemoryKeyedLog(ManualClock()) for job in (one, other)}
    new = {job: WriterAttempt(job.key, "0", 5, 1) for job in logs}
    old = WriterAttempt("a-b-1", "0", 4, 1)
    logs[one].append([LineageCommits("l1").with_batch(0, new[one]).entry(GROUPER)])
    logs[other].append([LineageCommits("l2").with_batch(0, old).with_batch(1, new[other]).entry(GROUPER)])
    stamps = [stamp(0, new[one], 1), stamp(0, old, 1), stamp(1, new[other], 1), stamp(1, old, 1), None]
    messages = [
        Message(text, where, at) for at, (text, where) in enumerate(zip("abcde", stamps, strict=True))
    ]
    clock = ManualClock()
    topic: Any = Topic(messages, clock)
    reader = CommittedReader(topic, logs, clock)
    assert texts(reader) == ["a", "b", "c", "e"], "the last old one was never committed"


def test_records_of_a_job_whose_log_was_not_given_are_an_error() -> None:
    reader, _ = reader_of(Message("a", stamp(0, WriterAttempt("others-1", "0", 1, 1))))
    with pytest.raises(ConfigError, match="job others-1 writes this topic"):
        reader.poll(1.0)
