"""A container of a pipeline that leaves the model amid a batch: it commits no more, and its readers learn of it."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.output_commits import LineageCommits, OutputCommits, RecordFate, Stamp, WriterAttempt
from grete.clock import SystemClock
from grete.config.key_tables.job import SSP_GROUPER
from grete.config.settings import Settings
from grete.coordinator.fencing import fence_off
from grete.errors import Fenced
from grete.model.fence import Fence
from grete.model.ids import ContainerId, JobId
from grete.systems.commit_group import CommitGroup
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster

pytestmark = pytest.mark.fault
ONE = ContainerId("1")


@pytest.mark.parametrize("kind", ["app.class", "task.class"])
def test_readers_need_not_wait_for_what_a_container_wrote_that_was_fenced_off(
    kafka: KafkaCluster, kind: str
) -> None:
    """Outputs of a StreamTask are committed with its checkpoints, so there is no wait for those."""
    job = JobId(f"gone-{uuid.uuid4().hex[:8]}")
    config = {
        kind: "application:Application",
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
        "task.checkpoint.replication.factor": "1",
        "task.commit.groups": "2",
    }
    attempt, log = WriterAttempt(str(job), ONE, 5, 1), checkpoint_log_name(job)
    last = LineageCommits("l1").with_batch(0, attempt)
    with closing(open_system(Settings.of(config), "kafka", Path(), SystemClock())) as system:
        old = Fence(f"container/{job}/{ONE}", 5)
        system.raise_fence([old])
        system.commit(CommitGroup([old], [], log, [last.entry(str(SSP_GROUPER.default))]))

        fence_off(job, ONE, 6, Settings.of(config), {"kafka": system})

        with pytest.raises(Fenced):
            system.commit(
                CommitGroup([old], [], log, [last.with_batch(1, attempt).entry(str(SSP_GROUPER.default))])
            )
        found = OutputCommits()
        found.read(system.checkpoint_log(log).read())
    assert found.verdict(Stamp(attempt, 0, 0)) is RecordFate.COMMITTED
    awaited = RecordFate.VOID if kind == "app.class" else RecordFate.PENDING
    assert found.verdict(Stamp(attempt, 1, 0)) is awaited
