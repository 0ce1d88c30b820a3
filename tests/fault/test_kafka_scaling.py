"""A job on Kafka whose container count is changed while records come: each record once, a key's in their order."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import Job, job_on

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, reaches

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
ROUNDS = 5 if os.environ.get("GRETE_NIGHTLY") == "1" else 1
AT_ONCE = 50


@contextmanager
def load(job: Job) -> Iterator[None]:
    """Records come all the time, about 1,000 a second."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(AT_ONCE / 1_000):
            job.send(AT_ONCE)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()


def test_from_one_container_to_three_to_two_under_load_each_record_is_counted_once_in_the_order_of_its_key(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"job.container.count": "1", "task.commit.groups": "2"}
    with job_on(kafka, tmp_path / "job", monkeypatch, partitions=6, settings=settings) as job:
        job.submit()
        job.send(200)
        job.await_counted()
        with load(job):
            for count in (3, 2) * ROUNDS:
                job.set("job.container.count", str(count))
                eventually(lambda wanted=count: len(job.container_pids()) == wanted, context=job.log_ends)
                reaches(job.count, job.count() + 1_000, "records counted", context=job.log_ends)
        job.await_counted()
        job.stop()
        job.assert_each_counted_once()
        job.assert_order_of_keys()
