"""Shares that commit where they run, on the embedded system: the very tests of Kafka's, without a broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kafka import test_executor_commit as on_kafka
from tests.kafka.kafka_job import KEYS, Job

from grete.clock import SystemClock
from grete.container.checkpoints import committed
from grete.errors import LogCorrupted
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem

test_a_message_that_cannot_be_read_late_in_a_long_transaction_leaves_nothing_of_it = (
    on_kafka.test_a_message_that_cannot_be_read_late_in_a_long_transaction_leaves_nothing_of_it
)
test_a_rewind_brings_the_stores_back_with_the_offsets = (
    on_kafka.test_a_rewind_brings_the_stores_back_with_the_offsets
)
test_a_share_that_begins_again_goes_on_from_what_was_committed = (
    on_kafka.test_a_share_that_begins_again_goes_on_from_what_was_committed_and_not_reported
)
test_an_attempt_that_fails_anywhere_is_made_up_for = (
    on_kafka.test_an_attempt_that_fails_anywhere_is_made_up_for
)
test_an_epoch_that_was_given_up_commits_nothing_in_slots_that_the_next_one_does_not_have = (
    on_kafka.test_an_epoch_that_was_given_up_commits_nothing_in_slots_that_the_next_one_does_not_have
)
test_the_epoch_after_one_that_has_ended_goes_on_from_what_was_reported = (
    on_kafka.test_the_epoch_after_one_that_has_ended_goes_on_from_what_was_reported_of_it
)
test_the_share_of_the_next_epoch_goes_on_with_what_the_last_one_has_open = (
    on_kafka.test_the_share_of_the_next_epoch_goes_on_with_what_the_last_one_has_open
)
test_an_attempt_that_comes_late_commits_nothing = (
    on_kafka.test_an_attempt_that_was_taken_for_lost_and_comes_late_commits_nothing
)
test_attempts_that_take_a_slot_from_each_other_double_nothing = (
    on_kafka.test_attempts_that_take_a_slot_from_each_other_double_nothing_and_lose_nothing
)
test_stores_come_back_from_their_changelogs = on_kafka.test_stores_come_back_from_their_changelogs
test_the_next_container_goes_on_and_the_one_before_is_refused = (
    on_kafka.test_the_next_container_goes_on_and_the_one_before_is_refused
)
test_what_another_run_commits_meanwhile_is_noticed = (
    on_kafka.test_what_another_run_of_the_container_commits_meanwhile_is_noticed_and_nothing_is_written
)
test_work_of_which_one_share_has_committed_is_finished_after_a_restart = (
    on_kafka.test_work_of_which_one_share_has_committed_is_finished_after_a_restart
)


class LocalJob(Job):
    """The job with its streams in a folder."""

    name = "local"

    def __init__(self, home: Path, *, partitions: int = 2, config: Mapping[str, str] | None = None) -> None:
        self.mark = uuid.uuid4().hex[:8]
        self.home = home
        self.partitions = partitions
        self.input, self.output = "in", "out"
        self.job = JobId("counter", "1")
        self.config = {
            "job.name": self.job.name,
            "systems.local.samza.offset.default": "oldest",
            "systems.local.samza.key.serde": "string",
            "systems.local.samza.msg.serde": "json",
            "task.class": f"{Job.__module__}:Counter",
            "task.outputs": "local.out",
            "test.out": "local.out",
            "stores.counts.factory": "grete.store.sqlite",
            **(config or {}),
        }
        self.system = self.open()
        self.system.create_stream(StreamSpec(self.input, partitions))
        self.system.create_stream(StreamSpec(self.changelog, partitions, compacted=True))
        self.sent = 0

    def open(self) -> Any:
        return LocalSystem(self.home / "local", SystemClock())

    def send(self, key: str, value: bytes = b"{}", partition: int | None = None) -> None:
        self.system.append(self.input, [Message(key.encode(), value, 1, partition)])

    def fill(self, records: int) -> None:
        keys = [number % KEYS for number in range(self.sent, self.sent + records)]
        self.system.append(
            self.input, [Message(b"key%d" % key, b"{}", 1, key % self.partitions) for key in keys]
        )
        self.sent += records

    def records(self, stream: str) -> Iterator[dict[str, Any]]:
        for partition in range(self.system.partition_count(stream)):
            for _, batch in self.system.read(stream, partition, 0):
                yield from batch.to_pylist()


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with ExitStack() as stack:

        def make(config: Mapping[str, str] | None = None) -> Job:
            job = LocalJob(tmp_path, config=config)
            stack.callback(job.close)
            return job

        yield make


def test_another_program_in_the_changelog_ends_the_share_before_it_commits(
    make_job: Callable[..., Job],
) -> None:
    job = make_job()
    container = job.container(1)
    worker = container.worker()
    job.fill(20)
    container.run(worker)
    job.system.append(job.changelog, [Message(b"key0", b"99", 1, 0)])
    job.fill(20)
    before = job.counts()
    with pytest.raises(LogCorrupted, match="another program writes to this changelog"):
        container.run(worker, slots=[0])
    assert job.counts() == before


def test_only_what_is_not_known_of_a_checkpoint_log_is_read(make_job: Callable[..., Job]) -> None:
    """All of it may be 50,000 records."""
    job = make_job()
    job.fill(20)
    container = job.container(1)
    container.run(container.worker())
    known = container.ended.known
    invented = {task: replace(commit, lineage="known") for task, commit in known.commits.items()}
    found = committed(job.assignment(1), job.system, replace(known, commits=invented))
    assert found == invented
    fewer = replace(known, tasks=frozenset(sorted(known.tasks)[:1]))
    assert committed(job.assignment(1), job.system, fewer) == known.commits, "a task has come, so all is read"
