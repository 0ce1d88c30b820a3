"""A coordinator that is killed is succeeded by the one that stands by, on every back end, and nothing is lost.

Servers are those of the run. By hand: `python -m grete_workbench.failover --backend kafka --kills 50`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient
from grete_workbench.azurite import Azurite
from grete_workbench.failover.trial import WrittenEpochs, ended, job_of, recorded_epoch, started
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.zookeeper_server import ZooKeeperCluster

pytestmark = pytest.mark.fault


class FailOver:
    """The trials of one back end; `address` is that of its server."""

    BACK_END: str
    KILLS = 1

    @pytest.fixture
    def address(self) -> str | None:
        return None

    @pytest.mark.timeout(180)
    def test_a_killed_leader_is_succeeded_and_nothing_is_lost_doubled_or_written_late(
        self, address: str | None, tmp_path: Path
    ) -> None:
        self.check(self.KILLS, address, tmp_path)

    @pytest.mark.nightly
    @pytest.mark.timeout(3000)
    def test_fifty_killed_leaders_are_succeeded(self, address: str | None, tmp_path: Path) -> None:
        self.check(50, address, tmp_path)

    @pytest.mark.nightly
    @pytest.mark.timeout(1800)
    def test_ten_killed_processors_that_lead_are_succeeded(self, address: str | None, tmp_path: Path) -> None:
        self.check_processors(10, address, tmp_path)

    @pytest.mark.alone
    @pytest.mark.nightly
    @pytest.mark.timeout(1200)
    def test_beside_busy_processes_a_leader_that_lives_is_not_succeeded(
        self, address: str | None, tmp_path: Path
    ) -> None:
        self.check_calm(60, address, tmp_path)

    def check_calm(self, seconds: int, address: str | None, folder: Path) -> None:
        outcome = self.run(["--calm-s", str(seconds), "--burn"], address, folder, seconds + 120)
        assert outcome["false_fail_overs"] == 0
        assert outcome["calm_s"] >= seconds
        assert (outcome["stale_effects"], outcome["lost"], outcome["doubled"]) == (0, 0, 0)

    def run(self, words: list[str], address: str | None, folder: Path, within_s: float) -> dict[str, Any]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "grete_workbench.failover", "--backend", self.BACK_END, *words),
                *("--json", str(folder / "found.json")),
                *(["--address", address] if address else []),
            ],
            capture_output=True,
            text=True,
            timeout=patient(within_s),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)
        outcome: dict[str, Any] = json.loads((folder / "found.json").read_text())
        return outcome

    def check_processors(self, kills: int, address: str | None, folder: Path) -> None:
        outcome = self.check(kills, address, folder, "--processors")
        assert outcome["of"] == "processors"
        assert all(each["processing_s"] >= each["leading_s"] for each in outcome["fail_overs"])

    def check(self, kills: int, address: str | None, folder: Path, *more: str) -> dict[str, Any]:
        outcome = self.run(["--kills", str(kills), *more], address, folder, 120 + kills * 90)
        epochs = [each["epoch"] for each in outcome["fail_overs"]]
        assert len(epochs) == kills
        assert epochs == sorted(set(epochs))
        assert (outcome["stale_effects"], outcome["lost"], outcome["doubled"]) == (0, 0, 0)
        assert outcome["records"] > 100
        return outcome


def test_a_trial_whose_job_ends_badly_says_so_with_the_log_of_its_coordinators(tmp_path: Path) -> None:
    """Here the one that was started last is refused, since another one leads."""
    with job_of({}, tmp_path, 3.0) as job:
        started(job)
        with open_job(job.job) as handle:
            job.start().wait(patient(30))
            with pytest.raises(
                AssertionError, match=r"the job ended with code 4:\n[^$]*HeldByOther: job failover-"
            ):
                ended(job, handle, WrittenEpochs(handle), recorded_epoch(handle))


class TestOnSqlite(FailOver):
    BACK_END = "sqlite"
    KILLS = 3

    @pytest.mark.timeout(180)
    def test_a_killed_processor_that_leads_is_succeeded_and_its_tasks_go_on(self, tmp_path: Path) -> None:
        self.check_processors(1, None, tmp_path)

    @pytest.mark.timeout(120)
    @pytest.mark.nightly  # half a minute of busy processors; the whole run is such a machine too
    def test_for_four_leases_beside_busy_processes_a_leader_is_not_succeeded(self, tmp_path: Path) -> None:
        self.check_calm(12, None, tmp_path)


@pytest.mark.nightly  # a lease is 15 s there
class TestOnAzure(FailOver):
    BACK_END = "azure"

    @pytest.fixture
    def address(self, azurite: Azurite) -> str | None:
        return azurite.bootstrap


class TestOnKafka(FailOver):
    BACK_END = "kafka"

    @pytest.fixture
    def address(self, kafka: KafkaCluster) -> str | None:
        return kafka.bootstrap


class TestOnKubernetes(FailOver):
    BACK_END = "kubernetes"

    @pytest.fixture
    def address(self, kubernetes: KubeApiServer) -> str | None:
        return kubernetes.bootstrap


class TestOnZooKeeper(FailOver):
    BACK_END = "zookeeper"

    @pytest.fixture
    def address(self, zookeeper: ZooKeeperCluster) -> str | None:
        return zookeeper.bootstrap
