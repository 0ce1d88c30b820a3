"""A whole job without Spark, killed at random: coordinator, containers, standby containers."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem
from grete.testing.chaos.own_job import OwnJob
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.fault
CHANGELOG = "chaos-1-counts-changelog"


def test_nothing_is_lost_or_done_twice_whatever_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "kills.log"
    options = ["--own-job", "--without-spark", "--scale", "--pause-time", "4", "--rounds", "8", "--seed", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "grete.testing.chaos", *options, "--kill-time", "1.5", "--log-file", str(log)],
        capture_output=True,
        text=True,
        timeout=patient(300),
    )
    assert done.returncode == 0, done.stderr
    victims = log.read_text()
    assert " container, process" in victims
    assert " coordinator, process" in victims


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnJob]:
    job = OwnJob(tmp_path, spark=False)
    yield job
    job.close()


def changelog_ends(home: Path) -> list[int]:
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        return sorted(int(end.upcoming) for end in local.offsets(CHANGELOG).values())


def copies(home: Path) -> list[int]:
    found = []
    for path in (home / "jobs" / "chaos-1" / "standby-0").rglob("counts.db"):
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(10_000)  # its standby container writes to it
            if connection.table_exists(None, "meta"):  # it may have only just been made
                found += [position for (position,) in connection.execute("SELECT position FROM meta")]
    return sorted(found)


def test_lost_stores_come_back_from_the_copies_that_standby_containers_kept(own: OwnJob) -> None:
    own.send(1_000)
    own.start()
    assert own.wait_until_counted(1_000, 60)
    eventually(lambda: copies(own.home) == changelog_ends(own.home), "the copies")
    assert own.stop() == 0
    shutil.rmtree(own.home / "jobs" / "chaos-1" / "stores")
    own.send(500)
    own.start()
    assert own.wait_until_counted(1_500, 60)
    eventually(lambda: copies(own.home) == changelog_ends(own.home), "the copies again")
    assert own.stop() == 0
    assert list(own.problems()) == []
    assert copies(own.home) == changelog_ends(own.home)
    logs = "".join(path.read_text() for path in (own.home / "jobs" / "chaos-1" / "logs").glob("*.log"))
    assert logs.count("was taken over from the standby copy") == 3


def test_a_job_goes_on_when_its_standby_containers_are_killed(own: OwnJob) -> None:
    own.send(200)
    own.start()
    assert own.wait_until_counted(200, 60)
    killed = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"GRETE_HOME={own.home}".encode() in environment and b"SAMZA_CONTAINER_ID=0-0" in environment:
            subprocess.run(["kill", f"-{signal.SIGKILL}", path.name], check=True)
            killed += 1
    assert killed == 1
    own.send(200)
    assert own.wait_until_counted(400, 60)
    assert own.stop() == 0
    assert list(own.problems()) == []
