"""A job that restores its stores from snapshots counts every record once, whatever is killed and lost."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import job_on

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


def test_each_record_counts_once_though_containers_are_killed_and_their_stores_lost(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    settings = {"job.snapshot.dir": str(shared), "job.snapshot.interval.ms": "1000"}
    with job_on(kafka, tmp_path / "home", monkeypatch, settings=settings) as job:
        job.submit()
        for _ in range(3):
            job.send(400)
            job.await_counted()
            job.send(40)  # so that a batch begins when a snapshot is due
            eventually(lambda: list(shared.rglob("*.json")), "a snapshot is there", context=job.log_ends)
            for pid in job.container_pids():
                with contextlib.suppress(ProcessLookupError):  # the one before, whose successor begins
                    os.kill(pid, signal.SIGKILL)
            job.lose_stores()
        job.kill()
        job.send(100)
        job.run_again()
        job.await_counted()
        job.stop()
        job.assert_each_counted_once()
        assert job.has_said("was taken over from the snapshot"), job.log_ends()
