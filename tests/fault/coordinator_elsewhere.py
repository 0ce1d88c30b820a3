"""What happens to a job whose leaders are elected on servers that are cut off, the same on each kind of server.

The real coordinator and containers, without Spark; the data is in the embedded system, so that only the control plane
needs the servers (S2-128).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.copying_job import TTL_S, CopyingJob
from tests.support.tcp_proxy import TcpProxy

from grete.operations import open_job
from grete.testing.waiting import eventually, patient


class CoordinatorElsewhere:
    """The tests. Two fixtures are of each kind of server: `way` leads to them, and `settings` name it."""

    @pytest.fixture
    def job(
        self, settings: dict[str, str], way: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[CopyingJob]:
        monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
        made = CopyingJob(tmp_path, settings)
        yield made
        way.restore()
        made.end()

    def test_a_coordinator_that_is_killed_is_succeeded_by_the_next_start(self, job: CopyingJob) -> None:
        """By name alone, since the home knows where the stream is; the container goes on and is adopted."""
        first, epoch = job.copying()
        with open_job(job.id) as handle:
            assert handle.election.leading_epoch() == epoch
        first.kill()
        first.wait()
        job.send(100)
        eventually(job.copied_once, "a container without a coordinator goes on")
        second = job.run_again()
        eventually(lambda: "container-adopted" in job.events(), "the container is adopted")
        assert job.epoch() > epoch
        job.send(100)
        eventually(job.copied_once, "the adopted container goes on")
        job.stop()
        assert second.wait(patient(30)) == 0
        with open_job(job.id) as handle:
            assert handle.election.holder() is None

    def test_servers_that_are_away_longer_than_the_lease_cost_an_incarnation_and_nothing_else(
        self, job: CopyingJob, way: TcpProxy
    ) -> None:
        """The process stays, its containers go on; with the servers comes another incarnation of a higher epoch."""
        process, epoch = job.copying()
        way.cut()
        time.sleep(2 * TTL_S)
        job.send(100)
        eventually(job.copied_once, "data does not need the coordinator")
        assert process.poll() is None
        way.restore()

        eventually(lambda: job.epoch() > epoch, "another incarnation leads")
        eventually(lambda: "container-adopted" in job.events(), "the container is adopted")
        job.send(100)
        eventually(job.copied_once, "the adopted container goes on")
        job.stop()
        assert process.wait(patient(30)) == 0
