"""A job with standby containers, with Spark: its Python workers take lost stores over from the copies."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import closing
from typing import Any

import apsw
import pytest

from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

RECORDS = 3_000
CHANGELOG = "counter-1-counts-changelog"


def changelog_ends(job: Any) -> list[int]:
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        if CHANGELOG not in local.streams():
            return []
        return sorted(int(end.upcoming) for end in local.offsets(CHANGELOG).values())


def copies(job: Any) -> list[int]:
    found = []
    for path in (job.home / "jobs" / "counter-1" / "standby-0").rglob("*.db"):
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            found += [position for (position,) in connection.execute("SELECT position FROM meta")]
    return sorted(found)


def test_a_lost_store_comes_back_from_the_copy_that_a_standby_container_kept(counter_job: Any) -> None:
    counter_job.fill(RECORDS)
    with counter_job.config.open("a") as config:
        config.write("job.standbytasks.replication.factor=2\n")
    running = subprocess.Popen(
        counter_job.command("run", "--quiet"), env=counter_job.environment(), stderr=subprocess.DEVNULL
    )
    try:
        counter_job.wait_until_counted(RECORDS)
        eventually(
            lambda: copies(counter_job) == changelog_ends(counter_job), "the copy", context=counter_job.report
        )
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(patient(90)) == 0
    shutil.rmtree(counter_job.home / "jobs" / "counter-1" / "stores")
    counter_job.fill(RECORDS)
    assert counter_job.run().returncode == 0
    counter_job.assert_exactly_once(2 * RECORDS)
    assert counter_job.log().count("was taken over from the standby copy") == 2
    assert copies(counter_job) == changelog_ends(counter_job)
