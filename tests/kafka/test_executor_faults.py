"""Executors that commit when brokers fail. Processed and lost: 0. Counted twice: 0."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka.kafka_job import Job

from grete.testing.kafka_broker import KafkaCluster

pytestmark = pytest.mark.fault


@pytest.fixture
def job(cluster: KafkaCluster, tmp_path: Path) -> Iterator[Job]:
    made = Job(cluster.bootstrap, tmp_path, config={"task.commit.transaction.timeout.ms": "2000"})
    yield made
    made.close()


@pytest.mark.nightly  # `test_job_on_kafka` does so with a whole job
def test_a_broker_that_is_killed_during_batches_and_comes_back_loses_and_doubles_nothing(
    cluster: KafkaCluster, job: Job
) -> None:
    container = job.container(1)
    worker, done, stop = container.worker(), [0], threading.Event()

    def work() -> None:
        while not stop.is_set():
            job.fill(14)
            container.run(worker)
            done[0] += 1

    working = threading.Thread(target=work)
    working.start()
    for _ in range(2):
        reached = done[0]
        while done[0] < reached + 3 and working.is_alive():
            time.sleep(0.01)
        cluster.kill()
        cluster.restart()
    reached = done[0]
    while done[0] < reached + 3 and working.is_alive():
        time.sleep(0.01)
    stop.set()
    working.join()
    assert done[0] >= reached + 3, "the job did not go on"
    job.assert_exactly_once()
