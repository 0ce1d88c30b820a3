"""A deleted job leaves its service as it was, and none of its leaders' epochs comes again under its name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.copying_job import CopyingJob

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.base import forgotten_epoch
from grete.coordination.factory import open_coordination
from grete.errors import JobNotFound
from grete.model.fence import job_scope
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.azurite import Azurite
from grete_workbench.failover.services import job_settings
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.zookeeper_server import ZooKeeperCluster

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]
TTL_S = 15.0


class DeletedJob:
    """The test. A fixture `settings` of each back end says where leaders are elected."""

    @pytest.fixture
    def job(
        self, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[CopyingJob]:
        monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
        made = CopyingJob(tmp_path, {**settings, "job.coordinator.lease.ttl.ms": str(round(TTL_S * 1000))})
        yield made
        made.end()

    def test_its_leadership_and_cells_are_gone_and_the_next_of_its_name_has_a_higher_epoch(
        self, job: CopyingJob, tmp_path: Path
    ) -> None:
        first, epoch = job.copying()
        job.stop()
        assert first.wait(patient(30)) == 0
        assert main(["job", "delete", "--job", job.id.shown, "--execute"]) == 0
        scope = job_scope(job.id)
        elected_at = Settings.of(job.settings)
        with closing(open_coordination(elected_at, tmp_path / "home", SystemClock(), ttl_s=TTL_S)) as service:
            assert forgotten_epoch(service) > epoch
            assert service.leading_epoch(scope) is None
            assert dict(service.cells(scope).read_all("")) == {}

        def leading() -> int:
            try:
                return job.epoch()
            except JobNotFound:
                return 0

        again = job.submit()
        eventually(leading, "the job of the same name is led")
        assert leading() > epoch
        job.stop()
        assert again.wait(patient(30)) == 0


class TestOnSqlite(DeletedJob):
    @pytest.fixture
    def settings(self) -> dict[str, str]:
        return job_settings("sqlite", "")


@pytest.mark.nightly
class TestOnAzure(DeletedJob):
    @pytest.fixture
    def settings(self, azurite: Azurite) -> dict[str, str]:
        return job_settings("azure", azurite.bootstrap)


@pytest.mark.nightly
class TestOnKafka(DeletedJob):
    @pytest.fixture
    def settings(self, kafka: KafkaCluster) -> dict[str, str]:
        return job_settings("kafka", kafka.bootstrap)


class TestOnKubernetes(DeletedJob):
    @pytest.fixture
    def settings(self, kubernetes: KubeApiServer) -> dict[str, str]:
        prefix = f"test-{uuid.uuid4().hex[:8]}"
        return {
            **job_settings("kubernetes", kubernetes.bootstrap),
            "job.coordinator.kubernetes.lease.prefix": prefix,
        }


class TestOnZooKeeper(DeletedJob):
    @pytest.fixture
    def settings(self, zookeeper: ZooKeeperCluster) -> dict[str, str]:
        return job_settings("zookeeper", f"{zookeeper.bootstrap}/{uuid.uuid4().hex[:8]}")
