"""A job that YARN runs: deployed, its ApplicationMaster killed, looked at and stopped by its configuration alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fault.job_on_kafka import PATIENT
from tests.support.client_environment import environment_of_a_client
from tests.support.deployed_job import DeployedJob, job_on_yarn, kill_application_master, processes_of

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually
from grete_workbench.yarn import YarnCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def job(
    yarn: YarnCluster, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeployedJob]:
    with job_on_yarn(yarn, kafka, tmp_path, monkeypatch, PATIENT) as made:
        yield made


def last(job: DeployedJob) -> dict[str, Any]:
    found: dict[str, Any] = job.answer("deploy", "status")[0]
    return found


def test_a_killed_application_master_is_followed_by_an_attempt_that_loses_and_doubles_nothing(
    job: DeployedJob, yarn: YarnCluster
) -> None:
    """Deployed once at a time, and looked at, stopped and found ended from a home that knows nothing of it.

    Its application's package is nowhere but on the nodes once it was sent.
    """
    job.isolate()
    job.send(200)
    applied = job.answer("deploy", "apply")
    shutil.rmtree(job.packages)

    def said() -> str:
        return yarn.logs_of(applied["id"])

    job.await_counted(said)
    again = job.run("deploy", "apply")
    assert again.returncode == 1
    assert f"is deployed as {applied['id']}" in again.stderr
    running = last(job)
    assert (running["id"], running["live"], len(running["attempts"])) == (applied["id"], True, 1)
    public = ("--set", "job.http.host=0.0.0.0", "--set", "job.http.port=8443")
    [found] = job.answer("deploy", "status", "--file-sd", *public)
    node = running["attempts"][0]["where"].split()[-1].rpartition(":")[0]
    assert found["targets"] == [f"{node}:8443"]
    refused = job.run("deploy", "status", "--file-sd")
    assert (refused.returncode, "set job.http.host" in refused.stderr) == (2, True)

    began_s = time.monotonic()
    kill_application_master(running["attempts"][0]["where"].split()[0])
    job.send(200)
    job.await_counted(said)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    epoch_id = applied["id"].removeprefix("application_")
    assert job.starts() == [("deployment", epoch_id), ("attempt", epoch_id)]
    assert [one["number"] for one in last(job)["attempts"]] == [1, 2]
    assert "stop-requested" not in job.events()

    assert job.run("stop").returncode == 0
    eventually(lambda: not last(job)["live"], "the end of the application", context=said)
    assert last(job)["state"] == "FINISHED SUCCEEDED"
    job.assert_each_counted_once()
    job.assert_ran_in_its_package(yarn.nodes[1].directory)


@pytest.mark.nightly
def test_the_application_master_is_registered_in_time_though_the_coordinator_begins_late(
    yarn: YarnCluster, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YARN's wait for Spark's context is over before the coordinator has read its stream."""
    late = {
        "spark.yarn.am.waitTime": "30s",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.appMasterEnv.GRETE_FAILPOINT": ",".join(["submit.elected:delay"] * 45),
    }
    with job_on_yarn(yarn, kafka, tmp_path, monkeypatch, late) as job:
        job.send(100)
        applied = job.answer("deploy", "apply")
        eventually(job.count, "an output", within_s=150, context=lambda: yarn.logs_of(applied["id"]))
        job.await_counted()
        assert last(job)["live"]
        job.assert_each_counted_once()


@pytest.mark.nightly
def test_an_application_master_that_was_paused_with_its_node_is_fenced_when_it_wakes(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YARN takes the node for lost and begins an attempt on the other one; then there are two drivers."""
    expiry = {"yarn.nm.liveness-monitor.expiry-interval-ms": "15000"}
    yarn = YarnCluster(tmp_path / "yarn", nodes=2, settings=expiry)
    yarn.start()
    try:
        with job_on_yarn(yarn, kafka, tmp_path, monkeypatch) as job:
            job.send(200)
            applied = job.answer("deploy", "apply")

            def said() -> str:
                return yarn.logs_of(applied["id"])

            job.await_counted(said)
            container, _, node = last(job)["attempts"][0]["where"].split()
            [number] = [one.number for one in yarn.nodes if node.endswith(f":{one.port}")]
            paused = [pid for name in ("java", "python", "python3") for pid in processes_of(container, name)]
            assert len(paused) >= 2, "the JVM and the driver"
            yarn.pause(number)
            for pid in paused:
                os.kill(pid, signal.SIGSTOP)
            eventually(lambda: len(job.starts()) == 2, "another attempt", within_s=120, context=said)
            job.send(200)
            job.await_counted(said)
            assert [event for event, _ in job.starts()] == ["deployment", "attempt"]
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
            job.send(200)
            job.await_counted(said)
            drivers = [pid for pid in paused if Path(f"/proc/{pid}/comm").exists()]
            eventually(lambda: not any(map(is_driver, drivers)), "the end of the first driver", context=said)
            job.assert_each_counted_once()
    finally:
        yarn.stop()


@pytest.mark.nightly
def test_nodes_that_are_lost_with_an_executor_or_with_the_coordinator_cost_no_record(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two executors, one beside the coordinator for want of room. The second loss takes a lease with it as well."""
    small = {
        "yarn.nm.liveness-monitor.expiry-interval-ms": "15000",
        "yarn.nodemanager.resource.memory-mb": "2048",
    }
    yarn = YarnCluster(tmp_path / "yarn", nodes=2, settings=small)
    yarn.start()
    two = {**PATIENT, "spark.executor.instances": "2", "spark.executor.cores": "1"}
    try:
        with job_on_yarn(yarn, kafka, tmp_path, monkeypatch, two) as job:
            job.isolate()
            job.send(200)
            applied = job.answer("deploy", "apply")

            def said() -> str:
                return yarn.logs_of(applied["id"])

            def goes_on_without(number: int, what: str) -> None:
                job.send(200)
                began_s = time.monotonic()
                yarn.kill_machine(number)
                job.send(200)
                job.await_counted(said)
                print(what, round(time.monotonic() - began_s, 1))

            job.await_counted(said)
            [coordinators] = [
                one.number for one in yarn.nodes if last(job)["attempts"][0]["where"].endswith(f":{one.port}")
            ]
            [executors] = {2, 3} - {coordinators}
            goes_on_without(executors, "executor_lost_to_all_outputs_s")
            assert [event for event, _ in job.starts()] == ["deployment"]

            yarn.restart(executors)
            goes_on_without(coordinators, "coordinator_lost_to_all_outputs_s")
            assert [event for event, _ in job.starts()] == ["deployment", "attempt"]
            assert last(job)["attempts"][1]["where"].endswith(f":{yarn.nodes[executors - 1].port}")
            job.assert_each_counted_once()
            job.assert_ran_in_its_package(tmp_path / "yarn")
    finally:
        yarn.stop()


def is_driver(pid: int) -> bool:
    """Whether the process still is a Python driver."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith("python")
    return False


@pytest.mark.nightly
@pytest.mark.parametrize("is_package", [False, True])
def test_functions_of_a_pipeline_run_in_the_applications_environment_after_an_attempt_was_killed_too(
    job: DeployedJob, yarn: YarnCluster, tmp_path_factory: pytest.TempPathFactory, is_package: bool
) -> None:
    """The environment is on the nodes, or a package that YARN has brought there and is nowhere else any more.

    Without a reader of stamps a record may be seen twice.
    """
    if is_package:
        job.become_packaged_pipeline()
        below = yarn.nodes[1].directory
    else:
        below = environment_of_a_client(tmp_path_factory.mktemp("environment"))
        job.become_pipeline(below)
    job.send(200)
    applied = job.answer("deploy", "apply")
    shutil.rmtree(job.packages, ignore_errors=True)

    def said() -> str:
        return yarn.logs_of(applied["id"])

    job.await_counted(said)
    began_s = time.monotonic()
    kill_application_master(last(job)["attempts"][0]["where"].split()[0])
    job.send(200)
    job.assert_pipeline_ran_in(below, 400, said)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))


@pytest.mark.nightly
def test_of_two_deployments_at_once_one_runs_and_the_other_is_refused(job: DeployedJob) -> None:
    job.send(100)
    assert "is deployed as application_" in job.deployed_twice_at_once()
    job.await_counted()
    assert [one["live"] for one in job.answer("deploy", "status")].count(True) == 1
    job.assert_each_counted_once()


@pytest.mark.nightly
def test_a_job_goes_on_while_the_resource_manager_is_away_and_commands_say_so(
    job: DeployedJob, yarn: YarnCluster
) -> None:
    job.send(100)
    applied = job.answer("deploy", "apply")
    job.await_counted(lambda: yarn.logs_of(applied["id"]))
    yarn.pause()
    try:
        job.send(100)
        job.await_counted()
        asked = job.run("deploy", "status")
        assert asked.returncode == 1
        assert "ResourceManager gives no answer" in asked.stderr
    finally:
        yarn.resume()
    assert last(job)["live"]
    job.send(100)
    job.await_counted()
    assert len(job.starts()) == 1
    job.assert_each_counted_once()
