"""A whole stateful job on Kafka, its brokers killed and cut off: every record counted once, without intervention."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import PATIENT, job_on
from tests.support.consumer_group import group_lag

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

AWAY_S = 300 if os.environ.get("GRETE_NIGHTLY") == "1" else 8
"""The lease is 3 s; a call of the brokers waits 30 s for its answer, and a container 50 s for a coordinator."""


@pytest.mark.nightly  # 33 s; brokers are away in the next one, and killed in `test_kafka_starts.py`
def test_a_broker_that_is_killed_in_the_middle_and_comes_back_costs_no_record(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First for a moment, then for longer than the lease: coordinator and containers go on by themselves.

    The consumer group in which the job shows itself follows again, too.
    """
    group = {"task.checkpoint.consumer.group": "counting"}
    with job_on(cluster, tmp_path / "job", monkeypatch, copies=1, settings=group) as job:
        process = job.submit()
        job.send(200)
        job.await_counted()
        job.send(2_000)
        cluster.kill()
        cluster.restart()
        job.await_counted()
        before = job.epoch()
        job.send(2_000)
        cluster.kill()
        time.sleep(8)  # the lease is 3 s
        cluster.restart()
        job.await_counted()
        eventually(lambda: job.epoch() > before, "another incarnation leads")
        job.send(200)
        job.await_counted()
        assert process.poll() is None
        shown = {(job.input, partition): 0 for partition in range(job.partitions)}
        eventually(lambda: group_lag(cluster.bootstrap, "counting") == shown, "the group has no lag")
        job.stop()
        job.assert_each_counted_once()


@pytest.mark.timeout(240 + AWAY_S)
def test_brokers_that_are_away_for_longer_than_any_timeout_cost_no_record_and_are_soon_used_again(
    cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """How soon is recorded and decides nothing: `pytest -s` shows it, a JUnit report has it as a property."""
    with job_on(cluster, tmp_path / "job", monkeypatch) as job:
        process = job.submit()
        job.send(200)
        job.await_counted()
        job.send(1_000)
        cluster.kill()
        time.sleep(AWAY_S)
        cluster.restart()
        took_s = job.seconds_until_more()
        record_property("first_record_after_s", took_s)
        print(
            f"\nbrokers were away for {AWAY_S} s; the first record was counted {took_s:.1f} s after their return"
        )
        job.await_counted()
        assert process.poll() is None
        job.stop()
        job.assert_each_counted_once()


@pytest.mark.nightly  # three brokers of its own; a broker that dies in the middle is the first test here
def test_one_of_three_brokers_dies_and_the_job_goes_on(
    three: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three copies, two in step: nothing waits for the one that is gone, and nothing is lost when it comes back."""
    with job_on(three, tmp_path / "job", monkeypatch, copies=3, settings=PATIENT) as job:
        job.submit()
        job.send(200)
        job.await_counted()
        job.send(2_000)
        three.kill(2)
        job.await_counted()
        job.send(400)
        job.await_counted()
        three.restart(2)
        job.send(200)
        job.await_counted()
        job.stop()
        job.assert_each_counted_once()
