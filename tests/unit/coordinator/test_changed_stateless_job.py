"""Changed configurations of a stateless job: each record is processed once, or the change is refused."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

import grete
from grete.errors import GreteError
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "string",
    "job.container.count": "2",
}
GROUPER = "job.systemstreampartition.grouper.factory"
BY_SSP = "GroupBySystemStreamPartitionFactory"
ALL = "AllSspToSingleTaskGrouperFactory"
BROADCAST = "task.broadcast.inputs"
STORE = "task.checkpoint.factory"
RENAMING = {GROUPER, BROADCAST, "systems.other.samza.factory"}
PARTITIONS = 3


class Forward(grete.StreamTask):
    """Sends on what it gets."""

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        collector.send(f"{envelope.system_stream_partition.system}.out", envelope.message)


def feed(job: JobUnderTest, what: str, partitions: int = PARTITIONS) -> set[str]:
    names = {f"{what} {partition}" for partition in range(partitions)}
    for partition in range(partitions):
        job.send("local.in", f"{what} {partition}", partition=partition)
    return names


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({}, {GROUPER: BY_SSP}),
        ({}, {GROUPER: ALL, "job.container.count": "1"}),
        ({GROUPER: BY_SSP}, {GROUPER: "GroupByPartitionFactory"}),
        ({GROUPER: ALL, "job.container.count": "1"}, {GROUPER: BY_SSP}),
        ({GROUPER: ALL, "processor.list": "a", "job.container.count": "1"}, {"processor.list": "b"}),
        (
            {},
            {
                "task.name.grouper.factory": "org.apache.samza.container.grouper.task.GroupByContainerIdsFactory"
            },
        ),
        ({}, {"job.systemstreampartition.input.expansion.enabled": "false"}),
        ({}, {STORE: "grete.checkpoint.file-system", "task.checkpoint.path": "checkpoints"}),
        ({}, {STORE: "grete.checkpoint.coordinator-stream"}),
        ({STORE: "grete.checkpoint.coordinator-stream"}, {STORE: "grete.checkpoint.log"}),
        ({}, {"task.checkpoint.read.versions": "2"}),
        ({}, {"task.checkpoint.replication.factor": "1", "task.checkpoint.segment.bytes": "1000000"}),
        (
            {},
            {"systems.other.samza.factory": "local", "task.inputs": "other.in", "task.outputs": "other.out"},
        ),
        ({}, {"streams.id.samza.system": "local", "streams.id.samza.physical.name": "in"}),
        ({}, {BROADCAST: "local.in#0"}),
        ({}, {"job.container.count": "3"}),
        ({}, {"job.container.count": "1"}),
    ],
    ids=str,
)
def test_a_changed_stateless_job_processes_each_record_once_or_is_refused(
    start_job: StartJob, first: dict[str, str], then: dict[str, str], grown: bool
) -> None:
    """A new partition makes a new task, which begins at the default; elsewhere the default counts for nothing."""
    default = {"systems.local.samza.offset.default": "oldest"} if grown else {}
    job = start_job(Forward, {**CONFIG, **default, **first}, partitions={"local.in": PARTITIONS})
    sent = feed(job, "before")
    job.run()
    job.stop()
    if grown:
        job.add_partitions("local.in", 2 * PARTITIONS)
    sent |= feed(job, "stopped", PARTITIONS * (2 if grown else 1))
    refused = f"another {BROADCAST} may|name \\(systems" if set(then) & RENAMING else None
    with nullcontext() if refused is None else pytest.raises(GreteError, match=refused):
        job.restart(config=then)
    if refused is None:
        sent |= feed(job, "after")
        job.run()
        assert sorted(job.messages("local.out")) == sorted(sent)
