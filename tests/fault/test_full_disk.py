"""A disk that is full when a share commits: the job waits for room, and nothing is lost or counted twice."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.counter_job import COUNTER_PROPERTIES, CounterJob

from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]
RECORDS, FEW = 30_000, 4_000
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


STEPS = range(10, 410, 10)
"""Of the writes of each thread of the container: to streams and checkpoints, to stores, to the write-ahead logs."""


@pytest.mark.nightly
@pytest.mark.timeout(60 * 60)
def test_a_home_that_is_full_at_any_step_of_a_commit_costs_no_record(
    job_maker: Callable[[Path, str, str], CounterJob],
    counter_application: str,
    tmp_path: Path,
) -> None:
    """The disk is full from each step on for twenty writes, for whatever of the home is written then."""
    waited = 0
    for step in STEPS:
        job = job_maker(tmp_path / str(step), counter_application, COUNTER_PROPERTIES)
        job.fill(FEW)
        full = f"inject=pwrite64:error=ENOSPC:when={step}..{step + 20}"
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", full]
        result = subprocess.run(
            [*strace, *job.without_spark("--until-drained")],
            env=job.environment(),
            capture_output=True,
            text=True,
            timeout=patient(120),
            check=False,
        )
        logs = "".join(log.read_text() for log in job.home.glob("jobs/*/logs/*.log"))
        waited += "full" in logs + result.stderr
        if result.returncode:  # it was full before there was a job that could wait
            assert "full" in result.stderr, result.stderr
            again = job.run(spark=False)
            assert again.returncode == 0, again.stderr + job.report()
        job.assert_exactly_once(FEW)
    print(f"{len(STEPS)} steps, at {waited} of them the job met a full disk; none lost, none twice")
