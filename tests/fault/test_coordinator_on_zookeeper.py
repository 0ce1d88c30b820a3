"""A job whose leaders are elected on ZooKeeper, while its coordinator stream and data are in the embedded system."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.copying_job import TTL_S, CopyingJob
from tests.support.tcp_proxy import TcpProxy

from grete.cli.main import main
from grete.clock import SystemClock
from grete.coordination.zookeeper.election import ZooKeeperCoordination
from grete.coordination.zookeeper.settings import ZooKeeperSettings
from grete.model.fence import job_scope
from grete.operations import open_job
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually, patient
from grete.testing.zookeeper_server import ZooKeeperCluster

pytestmark = pytest.mark.fault


@pytest.fixture
def way(zookeeper: ZooKeeperCluster) -> Iterator[TcpProxy]:
    with TcpProxy(free_ports(1)[0], zookeeper.nodes[0].client_port) as opened:
        yield opened


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def job(way: TcpProxy, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CopyingJob]:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    made = CopyingJob(
        tmp_path,
        {
            "job.coordinator.factory": "org.apache.samza.zk.ZkJobCoordinatorFactory",
            "job.coordinator.zk.connect": f"127.0.0.1:{way.port}{path}",
            "job.coordinator.zk.connection.timeout.ms": "5000",
            "job.coordinator.system": "local",
        },
    )
    yield made
    way.restore()
    made.end()


def test_a_coordinator_that_is_killed_is_succeeded_within_the_lease_and_its_container_adopted(
    job: CopyingJob, zookeeper: ZooKeeperCluster, path: str
) -> None:
    first, epoch = job.copying()
    settings = ZooKeeperSettings(zookeeper.bootstrap + path, session_s=TTL_S)
    with closing(ZooKeeperCoordination(settings, SystemClock(), ttl_s=TTL_S)) as onlooker:
        assert onlooker.leading_epoch(job_scope(job.id)) == epoch
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
        assert handle.holder() is None


def test_doctor_looks_at_the_servers(
    job: CopyingJob, way: TcpProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(job, capsys)["zookeeper"].startswith("ok")
    assert "3 s of 3 s" in doctor(job, capsys)["zookeeper session"]
    way.cut()
    assert doctor(job, capsys)["zookeeper"].startswith("FAIL  no ZooKeeper server of 127.0.0.1")


def doctor(job: CopyingJob, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    main(["doctor", "--config", str(job.config), "-o", "json"])
    findings = json.loads(capsys.readouterr().out)
    return {one["check"]: f"{'ok' if one['ok'] else 'FAIL'}  {one['found']}" for one in findings}


def test_servers_that_are_away_longer_than_the_lease_cost_an_incarnation_and_nothing_else(
    job: CopyingJob, way: TcpProxy
) -> None:
    """The process stays, its containers go on, and with the servers comes another incarnation of a higher epoch."""
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
