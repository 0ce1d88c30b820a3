"""A job on YARN whose containers are applications of their own, on two nodes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import PATIENT
from tests.support.deployed_job import DeployedJob, job_on_yarn, processes_of

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually
from grete_workbench.yarn import YarnCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]
SEVERAL = {"spark.executor.cores": "1", "job.container.count": "2"}


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"), nodes=2)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def job(
    two_nodes: YarnCluster, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeployedJob]:
    with job_on_yarn(two_nodes, kafka, tmp_path, monkeypatch, {**PATIENT, **SEVERAL}) as made:
        yield made


def containers(job: DeployedJob) -> dict[str, str]:
    """The applications of the containers that run, by the containers' numbers."""
    found = job.answer("deploy", "status")[0]
    running = [one for one in found["containers"] if one["state"] == "running"]
    return {one["container"]: one["where"].partition(" ")[0] for one in running}


def said(yarn: YarnCluster) -> str:
    apps = (yarn.ask("apps")["apps"] or {"app": []})["app"]
    return "\n".join(f"=== {one['name']} {one['state']}\n{yarn.logs_of(one['id'])}" for one in apps)


def kill_driver(job: DeployedJob, yarn: YarnCluster, application: str) -> None:
    """SIGKILL to the JVM and the Python of an application's first container, at once."""
    [attempt] = yarn.ask(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"]
    for name in ("java", "python", "python3"):
        for pid in processes_of(attempt["containerId"], name):
            os.kill(pid, signal.SIGKILL)


def test_containers_outlive_their_coordinator_and_are_submitted_again_when_they_are_killed(
    job: DeployedJob, two_nodes: YarnCluster
) -> None:
    def all_said() -> str:
        return said(two_nodes)

    job.send(200)
    applied = job.answer("deploy", "apply")
    job.await_counted(all_said)
    first = containers(job)
    assert set(first) == {"0", "1"}, all_said()

    kill_driver(job, two_nodes, applied["id"])
    job.send(200)
    job.await_counted(all_said)
    eventually(lambda: len(job.starts()) == 2, "another attempt", within_s=90, context=all_said)
    eventually(
        lambda: sum(row.event == "container-adopted" for row in job.history()) == 2,
        "both adopted",
        within_s=60,
        context=all_said,
    )
    assert containers(job) == first

    began_s = time.monotonic()
    kill_driver(job, two_nodes, first["0"])
    job.send(200)
    job.await_counted(all_said)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    second = containers(job)
    assert second["0"] != first["0"]
    assert second["1"] == first["1"]

    assert job.run("config", "set", "job.container.count=1").returncode == 0
    eventually(lambda: set(containers(job)) == {"0"}, "one container", within_s=60, context=all_said)
    job.send(200)
    job.await_counted(all_said)

    assert job.run("stop").returncode == 0
    eventually(lambda: not containers(job), "no container", within_s=60, context=all_said)
    eventually(
        lambda: not job.answer("deploy", "status")[0]["live"], "the end of the coordinator", context=all_said
    )
    assert job.answer("deploy", "status")[0]["state"] == "FINISHED SUCCEEDED"
    job.assert_each_counted_once()
