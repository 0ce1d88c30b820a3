"""Stores whose changelogs are topics, kept warm by standby containers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.fault.job_on_kafka import Job, job_on

from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


def copied(job: Job) -> int:
    """How many records the counts in the warm copies add up to."""
    found = 0
    with open_job(job.id) as handle:
        paths = list((handle.state_directory / "standby-0").rglob("counts.db"))
    for path in paths:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(5_000)
            found += sum(int(count) for (count,) in connection.execute("SELECT v FROM kv"))
    return found


def test_lost_stores_come_back_from_the_copies_that_standby_containers_keep_of_topics(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"job.standbytasks.replication.factor": "2"}
    with job_on(kafka, tmp_path / "job", monkeypatch, settings=settings) as job:
        job.submit()
        job.send(400)
        job.await_counted()
        eventually(lambda: copied(job) == 400, "the copies have every count", context=job.log_ends)
        job.kill()
        job.lose_stores()
        job.run_again()
        job.send(100)
        job.await_counted()
        job.stop()
        job.assert_each_counted_once()
        assert job.has_said("was taken over from the standby copy")
