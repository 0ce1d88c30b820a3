"""A coordinator that decides how many containers its job has: real processes, which are killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fault.job_on_kafka import Job, job_on

from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(600)]
SLOW = """
import time
import grete

class Application(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        time.sleep(0.02)
        collector.send("kafka.NAME-out", envelope.message, key=envelope.key)
"""
SETTINGS = {
    "job.autosizing.enabled": "true",
    "job.autosizing.policy": "lag",
    "job.autosizing.container.most": "2",
    "job.autosizing.lag.ms": "2000",
    "job.autosizing.up.after.ms": "20000",
    "job.autosizing.down.after.ms": "20000",
    "job.coordinator.monitor-lag.frequency.ms": "1000",
    "spark.master": "local[1]",
}


def containers(job: Job) -> int:
    with open_job(job.id) as handle:
        return handle.settings.job.container_count


def test_a_job_that_is_behind_gets_a_container_more_and_gives_it_back(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch, application=SLOW, partitions=4, settings=SETTINGS) as job:
        job.send(8_000)
        job.submit()
        eventually(lambda: job.count() > 0, "it runs", context=job.log_ends)
        eventually(lambda: containers(job) == 2, "a container more", within_s=150, context=job.log_ends)
        job.kill()  # what was decided is in the coordinator stream
        job.run_again()
        eventually(lambda: len(job.container_pids()) == 2, "both are started", context=job.log_ends)
        eventually(lambda: containers(job) == 1, "it is given back", within_s=200, context=job.log_ends)
        job.await_counted()
        job.stop()
        reasons = [row.details.get("reason", "") for row in job.history()]
        for change in ("1 to 2", "2 to 1"):
            assert any(f"autosizing, {change} containers: " in reason for reason in reasons), reasons
        job.assert_each_copied_once()
