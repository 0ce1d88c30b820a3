"""A topic gets more partitions while a whole job reads it: the job notices by itself and follows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import COPYING, job_on

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

CONTAINERS = pytest.mark.parametrize(
    "containers", ["1", "2"] if os.environ.get("GRETE_NIGHTLY") == "1" else ["2"]
)


def watchful(containers: str) -> dict[str, str]:
    return {
        "job.container.count": containers,
        "job.coordinator.monitor-partition-change.frequency.ms": "500",
    }


@CONTAINERS
def test_a_stateful_job_follows_its_topic_and_keys_keep_their_counts(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, containers: str
) -> None:
    """While it has a backlog, so that keys of the new partitions have records in the old ones to be counted first."""
    with job_on(kafka, tmp_path / "job", monkeypatch, settings=watchful(containers)) as job:
        job.submit()
        job.send(200)
        job.await_counted()
        tasks = job.tasks()
        job.send(1_000)
        job.grow(4)
        job.send(400)
        job.await_event("reconfigured")
        job.send(400)
        job.await_counted()
        assert job.tasks() == tasks
        assert "container-exited" not in job.events()
        job.stop()
        job.assert_each_counted_once()


@CONTAINERS
def test_a_stateless_job_gets_a_task_for_each_new_partition(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, containers: str
) -> None:
    with job_on(
        kafka,
        tmp_path / "job",
        monkeypatch,
        application=COPYING,
        settings=watchful(containers),
    ) as job:
        job.submit()
        job.send(200)
        job.await_counted()
        job.send(1_000)
        job.grow(5)
        job.send(400)
        eventually(lambda: len(job.tasks()) == 5, "a task for each partition", context=job.log_ends)
        job.send(400)
        job.await_counted()
        assert "container-exited" not in job.events()
        job.stop()
        job.assert_each_copied_once()
