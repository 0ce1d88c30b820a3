"""Retention overtakes a job while it runs, and the job is to go on without what it has lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import COPYING, job_on
from tests.support.prometheus import firing, running_prometheus

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


def test_a_running_job_that_is_overtaken_goes_on_with_what_is_left_and_says_what_it_skipped(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {"task.lost-offsets.policy": "skip", "job.http.port": str(free_ports(1)[0])}
    with job_on(kafka, tmp_path / "job", monkeypatch, application=COPYING, settings=policy) as job:
        job.submit()
        job.send(200)
        job.await_counted()
        (pid,) = job.container_pids()
        os.kill(pid, signal.SIGSTOP)
        job.send(400)
        job.trim(1, 200)
        os.kill(pid, signal.SIGCONT)
        job.send(200)
        job.await_event("offsets-skipped")
        job.await_all_but(lost := 100)
        assert "container-exited" not in job.events()
        with running_prometheus(tmp_path) as prometheus:
            eventually(lambda: "GreteOffsetsSkipped" in firing(prometheus), "the alert fires")
        job.stop()
        numbers = [output.value["n"] for output in job.written()]
        assert len(numbers) == len(set(numbers)) == 800 - lost
        (row,) = (row for row in job.history() if row.event == "offsets-skipped")
        assert f"before 200 of kafka.{job.input}.1" in row.details["skipped"]
