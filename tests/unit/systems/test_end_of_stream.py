"""`on_end_of_stream`: once, in a transaction, when a job that is to end has consumed all that is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import grete
from grete.errors import ProcessingError
from grete.testing.job import JobUnderTest

CONFIG = {
    "task.inputs": "local.in,local.more",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.sums.factory": "grete.store.sqlite",
    "stores.sums.key.serde": "string",
    "stores.sums.msg.serde": "json",
}


class Sum(grete.StreamTask):
    """Adds up, and says the sum when no more can come."""

    def init(self, context: grete.TaskContext) -> None:
        self.sums = context.store("sums")
        self.task = context.task_name

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        self.sums.put("sum", (self.sums.get("sum") or 0) + envelope.message)

    def on_end_of_stream(self, collector: grete.MessageCollector, coordinator: grete.TaskCoordinator) -> None:
        if self.sums.get("sum") == 13:
            raise ValueError("thirteen")
        collector.send("local.out", {self.task: self.sums.get("sum")})


@pytest.fixture
def job() -> Iterator[JobUnderTest]:
    with JobUnderTest(Sum, CONFIG, partitions={"local.in": 2}) as made:
        yield made


def test_every_task_is_called_once_after_its_last_message(job: JobUnderTest) -> None:
    for number in (1, 2, 3):
        job.send("local.in", number, partition=0)
    job.send("local.more", 10)
    job.run()
    assert job.messages("local.out") == [], "more may come"
    job.send("local.in", 4, partition=0)
    job.drain()
    job.run()
    assert sorted(job.messages("local.out"), key=str) == [{"Partition 0": 20}, {"Partition 1": None}]


def test_what_comes_later_is_not_waited_for(job: JobUnderTest) -> None:
    job.send("local.in", 1, partition=0)
    job.block("local.in")
    job.send("local.in", 5, partition=0)
    job.drain()
    assert {"Partition 0": 1} in job.messages("local.out")


def test_it_is_called_again_when_it_was_not_committed(job: JobUnderTest) -> None:
    job.send("local.in", 1, partition=0)
    job.stop()
    job.start(until_drained=True)
    job.run_batch(commit=False)
    assert job.messages("local.out") == []
    job.kill()
    job.start(until_drained=True).run()
    assert {"Partition 0": 1} in job.messages("local.out")


def test_a_failure_at_the_end_commits_nothing_and_names_the_task(job: JobUnderTest) -> None:
    job.send("local.in", 13, partition=1)
    with pytest.raises(
        ProcessingError, match=r"on_end_of_stream\(\) of task 'Partition 1' failed: ValueError"
    ):
        job.drain()
    assert job.checkpoints() == {}


def test_a_drained_job_without_it_commits_nothing_at_its_end() -> None:
    def count(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        collector.send("local.out", 1)

    with JobUnderTest(count, CONFIG) as job:
        job.send("local.in", 1)
        assert job.drain().batches == 1
        assert job.drain().batches == 0
