"""The machine's clock jumps an hour back and an hour forth, again and again, while records flow: none is lost.

Real jumps of the real clock, for every process, the broker too. So these tests run alone (`make clock`, a part of
`make nightly`), as a user that may set the clock; when they end it goes as it would have gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.moved_job import await_all, change, containers, moved
from tests.support.shared_job import SharedJob

from grete.testing.waiting import eventually, reaches

pytestmark = [
    pytest.mark.fault,
    pytest.mark.nightly,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(
        os.environ.get("GRETE_SET_CLOCK") != "1", reason="sets the machine's clock: make clock"
    ),
]
HOUR_S = 3_600
ROUNDS = 5


class Jumps:
    """The machine's clock, and how far it is from what it would be."""

    def __init__(self) -> None:
        self._real, self._began = time.clock_gettime(time.CLOCK_REALTIME), time.monotonic()

    def to(self, offset_s: int) -> None:
        time.clock_settime(time.CLOCK_REALTIME, self._real + time.monotonic() - self._began + offset_s)


@pytest.fixture
def clock() -> Iterator[Jumps]:
    jumps = Jumps()
    try:
        yield jumps
    finally:
        jumps.to(0)


@pytest.mark.parametrize("system", ["local", "kafka"])
def test_a_job_goes_on_whatever_the_clock_does(
    system: str, clock: Jumps, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"job.container.count": "2", "job.standbytasks.replication.factor": "2"}
    took = []
    with moved(system, settings, tmp_path, request, monkeypatch) as job:
        job.start()
        with job.load():
            reaches(job.count, 500, "records counted", context=job.report)
            for turn in range(ROUNDS):
                for offset_s in (-HOUR_S, 0):
                    with job.quiet:  # the test's own producer is not what is tried
                        clock.to(offset_s)
                    since = time.monotonic()
                    reaches(job.count, job.count() + 500, "records counted", context=job.report)
                    took.append(time.monotonic() - since)
                    count = 2 + turn % 2 * (offset_s == 0)
                    change(job, "job.container.count", str(count))
                    eventually(lambda n=count: containers(job) == n, f"{count}", context=job.report)
        await_all(job)
        job.stop()
        job.check()
        print(
            f"{system}: {2 * ROUNDS} jumps of an hour, {job.sent()} records, none lost, none twice; "
            f"500 more were counted within {max(took):.1f} s of each"
        )


def test_processors_keep_their_shares_and_one_leader_whatever_the_clock_does(
    clock: Jumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    job = SharedJob(tmp_path, {"job.coordinator.system": "local"})
    try:
        with job.counting.fed(300):
            job.running("a", "b")
            for turn in range(ROUNDS):
                for offset_s in (-HOUR_S, 0):
                    clock.to(offset_s)
                    job.shares(2)
                    leader = job.leader()
                    leader.kill()
                    job.shares(1)
                    job.running(f"c{turn}{offset_s}")
        job.counted()
        print(
            f"{2 * ROUNDS} jumps of an hour, a leader killed after each, {job.counting.sent} records, none lost"
        )
    finally:
        job.close()


@pytest.mark.parametrize("system", ["local", "kafka"])
def test_a_job_without_records_hears_what_it_is_told_and_what_comes_whatever_the_clock_does(
    system: str, clock: Jumps, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the next record has waited since before the jump."""
    took = []
    with moved(system, {"job.container.count": "2"}, tmp_path, request, monkeypatch) as job:
        job.start()
        with job.load():
            reaches(job.count, 500, "records counted", context=job.report)
        await_all(job)
        for count in (1, 2, 3, 2):
            time.sleep(2)  # until all of them wait
            clock.to(-HOUR_S)
            since = time.monotonic()
            change(job, "job.container.count", str(count))
            eventually(lambda n=count: containers(job) == n, f"{count}", context=job.report)
            took.append(time.monotonic() - since)
            with job.load():
                reaches(job.count, job.sent() + 100, "records counted", context=job.report)
            await_all(job)
            clock.to(0)
        clock.to(-HOUR_S)
        since = time.monotonic()
        job.stop()
        took.append(time.monotonic() - since)
        job.check()
        print(f"{system}: followed within {max(took):.1f} s")
