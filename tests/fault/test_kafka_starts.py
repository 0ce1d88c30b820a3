"""The broker is killed while a job starts: in the middle of its coordinator's start, or of a store coming back."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import Job, job_on

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
OF_COORDINATORS = (
    "submit.elected",
    "coordinator.bootstrapped",
    "coordinator.metadata-written",
)
OF_STORES = ("store.created", "store.applied")


def stopped_at(point: str, job: Job, marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart the job; returns when one of its processes stands at the point."""
    monkeypatch.setenv("GRETE_FAILPOINT", f"{point}:stop")
    monkeypatch.setenv("GRETE_FAILPOINT_ONCE", str(marks))
    job.run_again()
    eventually(lambda: marks.is_dir() and any(marks.iterdir()), f"arriving at {point}", context=job.log_ends)
    eventually(lambda: any(map(stands, pids_at(point, job))), f"standing at {point}", context=job.log_ends)


def pids_at(point: str, job: Job) -> list[int]:
    return job.coordinator_pids() if point in OF_COORDINATORS else job.container_pids()


def stands(pid: int) -> bool:
    """Whether it is stopped: continued before that, it would stand for ever."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    return False


@pytest.mark.parametrize("point", (*OF_COORDINATORS, *OF_STORES) if NIGHTLY else (OF_COORDINATORS[1],))
def test_a_broker_that_is_killed_while_a_job_starts_costs_no_record(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Everything of the job was killed before, and its stores are lost; it recovers without intervention."""
    with job_on(cluster, tmp_path / "job", monkeypatch) as job:
        job.submit()
        job.send(400)
        job.await_counted()
        job.kill()
        job.lose_stores()
        job.send(100)  # a store is opened for the first message
        stopped_at(point, job, tmp_path / "marks", monkeypatch)
        pids = pids_at(point, job)
        cluster.kill()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        cluster.restart()
        job.send(100)
        job.await_counted()
        job.stop()
        job.assert_each_counted_once()
