"""A job whose leaders are elected on ZooKeeper, while its coordinator stream and data are in the embedded system."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from tests.fault.coordinator_elsewhere import CoordinatorElsewhere
from tests.fault.copying_job import CopyingJob
from tests.support.tcp_proxy import TcpProxy

from grete.cli.main import main
from grete.testing.server_cluster import free_ports
from grete_workbench.zookeeper_server import ZooKeeperCluster

pytestmark = pytest.mark.fault


@pytest.fixture
def way(zookeeper: ZooKeeperCluster) -> Iterator[TcpProxy]:
    with TcpProxy(free_ports(1)[0], zookeeper.nodes[0].client_port) as opened:
        yield opened


@pytest.fixture
def settings(way: TcpProxy) -> dict[str, str]:
    return {
        "job.coordinator.factory": "org.apache.samza.zk.ZkJobCoordinatorFactory",
        "job.coordinator.zk.connect": f"127.0.0.1:{way.port}/{uuid.uuid4().hex[:8]}",
        "job.coordinator.zk.connection.timeout.ms": "5000",
    }


class TestOnZooKeeper(CoordinatorElsewhere):
    """Its `settings` are the module's."""

    def test_doctor_looks_at_the_servers(
        self, job: CopyingJob, way: TcpProxy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert doctor(job, capsys)["zookeeper"].startswith("ok")
        assert "3 s of 3 s" in doctor(job, capsys)["zookeeper session"]
        way.cut()
        assert doctor(job, capsys)["zookeeper"].startswith("FAIL  no ZooKeeper server of 127.0.0.1")


def doctor(job: CopyingJob, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    main(["doctor", "--config", str(job.config), "-o", "json"])
    findings = json.loads(capsys.readouterr().out)
    return {one["check"]: f"{'ok' if one['ok'] else 'FAIL'}  {one['found']}" for one in findings}
