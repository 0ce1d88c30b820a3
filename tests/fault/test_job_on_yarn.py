"""A job that YARN runs: deployed, its ApplicationMaster killed, looked at and stopped by its configuration alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.deployed_job import DeployedJob, job_on_yarn, kill_application_master

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually
from grete.testing.yarn import YarnCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def job(
    yarn: YarnCluster, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeployedJob]:
    with job_on_yarn(yarn, kafka, tmp_path, monkeypatch) as made:
        yield made


def last(job: DeployedJob) -> dict[str, Any]:
    found: dict[str, Any] = job.answer("deploy", "status")[0]
    return found


def test_a_killed_application_master_is_followed_by_an_attempt_that_loses_and_doubles_nothing(
    job: DeployedJob, yarn: YarnCluster
) -> None:
    """Deployed once at a time, and looked at, stopped and found ended from a home that knows nothing of it."""
    job.send(200)
    applied = job.answer("deploy", "apply")

    def said() -> str:
        return yarn.logs_of(applied["id"])

    job.await_counted(said)
    again = job.run("deploy", "apply")
    assert again.returncode == 1
    assert f"is deployed as {applied['id']}" in again.stderr
    running = last(job)
    assert (running["id"], running["live"], len(running["attempts"])) == (applied["id"], True, 1)

    kill_application_master(running["attempts"][0]["where"].split()[0])
    job.send(200)
    job.await_counted(said)
    epoch_id = applied["id"].removeprefix("application_")
    assert job.starts() == [("deployment", epoch_id), ("attempt", epoch_id)]
    assert [one["number"] for one in last(job)["attempts"]] == [1, 2]
    assert "stop-requested" not in job.events()

    assert job.run("stop").returncode == 0
    eventually(lambda: not last(job)["live"], "the end of the application", context=said)
    assert last(job)["state"] == "FINISHED SUCCEEDED"
    job.assert_each_counted_once()
