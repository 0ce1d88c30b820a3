"""A disk that is full when a share commits: the job waits for room, and nothing is lost or counted twice."""

from __future__ import annotations

import subprocess

import pytest
from tests.conftest import CounterJob

from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]
RECORDS = 30_000
FULL = "inject=pwrite64:error=ENOSPC:when=60..90"
"""Of the writes of each thread into the streams' write-ahead log."""


def test_a_job_whose_disk_is_full_waits_for_room_says_which_disk_and_goes_on(counter_job: CounterJob) -> None:
    counter_job.fill(RECORDS)
    streams = counter_job.home / "local" / "streams.db-wal"
    strace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        str(streams),
        "-e",
        "trace=pwrite64",
        "-e",
        FULL,
    ]
    result = subprocess.run(
        [*strace, *counter_job.without_spark("--until-drained")],
        env=counter_job.environment(),
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert result.returncode == 0, result.stderr + counter_job.report()
    log = counter_job.log()
    assert "waits, and starts its work again until it can go on: the disk of" in log
    assert "streams.db is full" in log
    assert "container 0 goes on" in log
    counter_job.assert_exactly_once(RECORDS)
