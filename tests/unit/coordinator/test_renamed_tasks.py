"""A job whose SSPs come to other tasks: refused where checkpoints would be left behind, with stores or without."""

from __future__ import annotations

import pytest

import grete
from grete.errors import ConfigError
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

GROUPER = "job.systemstreampartition.grouper.factory"
BY_SSP = "GroupBySystemStreamPartitionFactory"
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}


class Forward(grete.StreamTask):
    """Sends on what it gets."""

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        collector.send("local.out", envelope.message)


@pytest.fixture
def read_up_to_one(start_job: StartJob) -> JobUnderTest:
    """A stateless job of two partitions that has read a record of each."""
    job = start_job(Forward, CONFIG, partitions={"local.in": 2})
    for partition in (0, 1):
        job.send("local.in", f"first of {partition}", partition=partition)
    job.run()
    return job


def test_a_stateless_job_is_refused_another_grouper_with_the_way_out(read_up_to_one: JobUnderTest) -> None:
    read_up_to_one.send("local.in", "second")
    with pytest.raises(ConfigError) as refused:
        read_up_to_one.restart(config={GROUPER: BY_SSP})
    assert (
        "local.in.0 was read up to 0 by 'Partition 0' and comes to 'SystemStreamPartition [local, in, 0]'"
        in str(refused.value)
    )
    assert f"Another {GROUPER} does this: set it back" in str(refused.value)


def test_the_grouper_set_back_the_job_goes_on_where_it_was(read_up_to_one: JobUnderTest) -> None:
    read_up_to_one.send("local.in", "second")
    with pytest.raises(ConfigError):
        read_up_to_one.restart(config={GROUPER: BY_SSP})
    read_up_to_one.restart(config={GROUPER: "GroupByPartitionFactory"}).run()
    assert sorted(read_up_to_one.messages("local.out")) == ["first of 0", "first of 1", "second"]


def test_who_says_where_to_begin_may_have_another_grouper(read_up_to_one: JobUnderTest) -> None:
    job = read_up_to_one.restart(
        config={
            GROUPER: BY_SSP,
            "streams.in.samza.reset.offset": "true",
            "streams.in.samza.offset.default": "oldest",
        }
    )
    job.run()
    assert sorted(job.messages("local.out")) == ["first of 0"] * 2 + ["first of 1"] * 2


def test_before_anything_was_read_any_grouper_is_as_good(start_job: StartJob) -> None:
    job = start_job(Forward, CONFIG)
    job.restart(config={GROUPER: BY_SSP})
    assert list(job.model.tasks) == ["SystemStreamPartition [local, in, 0]"]


def test_an_input_more_and_an_input_less_are_no_other_tasks(read_up_to_one: JobUnderTest) -> None:
    job = read_up_to_one.restart(config={"task.inputs": "local.in,local.more"})
    job.send("local.more", "of the other")
    job.run()
    job.restart(config={"task.inputs": "local.in"})
    assert job.checkpoints()["Partition 0"]["local.in.0"] == 0
