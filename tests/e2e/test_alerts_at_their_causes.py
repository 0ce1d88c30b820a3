"""Alerts at what happens to a job that runs, in a real Prometheus: to its containers, inputs and election."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.support.prometheus import fired, firing, running_prometheus, scraped
from tests.support.visits_job import JOB, append, running_visits

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.keyed_log.base import Entry
from grete.keyed_log.sqlite_coordinator_log import coordinator_file
from grete.model.fence import container_epoch, container_fence
from grete.model.ids import ContainerId
from grete.operations import open_job
from grete.systems.factory import open_system
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually

# 90 s; test_alerts.py has each on made-up series
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
Job = tuple[subprocess.Popen[bytes], int]
MORE = {
    "job.coordinator.lease.ttl.ms": "6000",
    "task.shutdown.ms": "1000",
    "job.coordinator.monitor-partition-change.frequency.ms": "1000",
    "cluster-manager.container.retry.count": "-1",
    "cluster-manager.container.retry.longest-pause.ms": "500",
}


@pytest.fixture
def job(home: Path) -> Iterator[Job]:
    [port] = free_ports(1)
    with running_visits(home, "a visit", partitions=2, **{"job.http.port": str(port)}, **MORE) as running:
        yield running, port


@pytest.fixture
def prometheus(job: Job, tmp_path: Path) -> Iterator[str]:
    with running_prometheus(tmp_path) as address:
        yield address


def container_of(job: Job) -> int:
    """The process of container 0."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = map(int, Path(f"/proc/{job[0].pid}/task/{job[0].pid}/children").read_text().split())
        return len(found) == 1

    eventually(is_there, "the container runs")
    return found[0]


def await_firing(prometheus: str, *names: str) -> None:
    """Each of them fires, at some time."""
    wanted, since_s = {f"Grete{name}" for name in names}, time.monotonic()

    def seen() -> set[str]:
        return fired(prometheus, time.monotonic() - since_s)

    eventually(lambda: wanted <= seen(), f"{names} fire", within_s=120, context=lambda: str(seen()))


def test_a_container_that_hangs_is_cut_off_fenced_and_dies(job: Job, prometheus: str, home: Path) -> None:
    eventually(lambda: scraped(prometheus, "grete_lag_messages") == ["0"], "it is scraped")
    os.kill(container_of(job), signal.SIGSTOP)
    append(home, *["a visit"] * 2_000)
    await_firing(prometheus, "LagGrows", "NothingIsCommitted", "ContainerSilent")
    eventually(
        lambda: scraped(prometheus, "grete_lag_messages") == ["0"], "another one goes on", within_s=120
    )
    os.kill(container_of(job), signal.SIGSTOP)
    assert main(["config", "set", "--job", "visits", "job.container.count", "2", "--reason", "x"]) == 0
    await_firing(prometheus, "ContainerWasCutOff")
    eventually(lambda: scraped(prometheus, "grete_running_containers") == ["2"], "others run")

    embedded = Settings.of({"systems.local.samza.factory": "local"})
    with closing(open_system(embedded, "local", home, SystemClock())) as system:
        system.raise_fence([container_fence(JOB, ContainerId("0"), container_epoch(1, 100))])
    append(home, "a visit")
    await_firing(prometheus, "ContainerWasFenced")

    append(home, *["deadly"] * 2)
    await_firing(prometheus, "ContainerFailsAgainAndAgain", "ContainerMissing", "JobUnhealthy")


def test_what_becomes_of_inputs_records_and_the_election_is_told(
    job: Job, prometheus: str, home: Path
) -> None:
    eventually(lambda: scraped(prometheus, "grete_lag_messages") == ["0"], "it is scraped")
    assert firing(prometheus) == set()
    with open_job(JOB) as handle:
        handle.stream.log.append([Entry(b"junk", b"nobody wrote this")])
    await_firing(prometheus, "UnknownRecords")

    for number in range(8):
        count = str(1 + number % 2)
        assert main(["config", "set", "--job", "visits", "job.container.count", count, "--reason", "x"]) == 0
        eventually(lambda: scraped(prometheus, "grete_container_count") == [count], "it has changed")  # noqa: B023
    await_firing(prometheus, "RebalancesAgainAndAgain")

    embedded = Settings.of({"systems.local.samza.factory": "local"})
    with closing(open_system(embedded, "local", home, SystemClock())) as system:
        system.delete_stream("in")
    await_firing(prometheus, "LagUnknown", "CannotLook")

    with closing(apsw.Connection(str(coordinator_file(embedded, home)))) as held:
        held.set_busy_timeout(10_000)
        held.execute("BEGIN IMMEDIATE")
        await_firing(prometheus, "LeaseRenewalsFail", "NotLeading")
        held.execute("ROLLBACK")


def test_a_disk_that_gets_full_is_told(home: Path, tmp_path: Path) -> None:
    """Mounts one, so needs root."""
    (disk := home / "jobs").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=True)
    [port] = free_ports(1)
    try:
        with (
            running_visits(home, "a visit", **{"job.http.port": str(port)}),
            running_prometheus(tmp_path) as prometheus,
        ):
            eventually(lambda: scraped(prometheus, "grete_job_healthy") == ["1"], "it is scraped")
            assert firing(prometheus) == set()
            (disk / "filler").write_bytes(bytes(60 << 20))
            await_firing(prometheus, "DiskNearlyFull")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
