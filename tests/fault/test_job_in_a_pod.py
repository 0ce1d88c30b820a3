"""A job that Kubernetes runs: its process killed, its pod replaced, and stopped by its configuration alone."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import PATIENT
from tests.support.client_environment import environment_of_a_client
from tests.support.deployed_job import DeployedJob, PodNode, job_on_kubernetes

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]
AWAY_S = 60.0


@pytest.fixture
def job(
    kubernetes: KubeApiServer, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeployedJob]:
    with job_on_kubernetes(kubernetes, kafka, tmp_path, monkeypatch, PATIENT) as made:
        yield made


def test_a_pod_that_is_killed_or_replaced_is_followed_by_an_attempt_that_loses_and_doubles_nothing(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
    """Its application has a package in the image, from which executors run it, too."""
    job.isolate()
    job.send(200)
    name = job.answer("deploy", "apply")["id"]
    pod = f"{name}-0"

    def said() -> str:
        return job.pod_logs()

    def pid() -> int:
        return int((job.pods / pod / "pid").read_text())

    def has_ended() -> bool:
        state = job.state()
        return state is not None and state.state == "stopped"

    job.await_counted(said)
    began_s = time.monotonic()
    os.kill(pid(), signal.SIGKILL)
    job.send(200)
    job.await_counted(said)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    [(first, epoch_id), *others] = job.starts()
    assert (first, others) == ("deployment", [("attempt", epoch_id)])

    kubernetes.call("DELETE", f"/api/v1/namespaces/{job.namespace}/pods/{pod}")
    eventually(lambda: len(job.starts()) == 3, "another pod", context=said)
    job.send(200)
    job.await_counted(said)
    assert job.starts()[1:] == [("attempt", epoch_id)] * 2
    events = [row.event for row in job.history()]
    assert "stepped-down" in events
    assert "stop-requested" not in events

    assert job.run("stop").returncode == 0
    eventually(has_ended, "the end of the job", context=said)
    before = pid()
    os.kill(before, signal.SIGKILL)
    eventually(lambda: pid() != before, "the pod's process again", context=said)
    eventually(
        lambda: "this pod rests" in (job.pods / pod / "log").read_text()[-2_000:], "its rest", context=said
    )
    assert len(job.starts()) == 3
    job.assert_each_counted_once()
    job.assert_ran_in_its_package(job.packages)
    assert job.answer("deploy", "kill") == {"ended": [name]}
    assert job.answer("deploy", "status") == []


@pytest.mark.nightly
@pytest.mark.parametrize("is_package", [False, True])
def test_functions_of_a_pipeline_run_in_the_applications_environment_after_a_pod_was_killed_too(
    job: DeployedJob, tmp_path_factory: pytest.TempPathFactory, is_package: bool
) -> None:
    """The environment, or a package, is in the image. Without a reader of stamps a record may be seen twice."""
    if is_package:
        job.become_packaged_pipeline()
        below = job.packages
    else:
        below = environment_of_a_client(tmp_path_factory.mktemp("environment"))
        job.become_pipeline(below)
    job.configure(PATIENT)
    job.send(200)
    name = job.answer("deploy", "apply")["id"]
    job.await_counted(job.pod_logs)
    began_s = time.monotonic()
    os.kill(int((job.pods / f"{name}-0" / "pid").read_text()), signal.SIGKILL)
    job.send(200)
    job.assert_pipeline_ran_in(below, 400, job.pod_logs)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))


@pytest.mark.nightly
def test_of_two_deployments_at_once_one_runs_and_the_other_is_refused(job: DeployedJob) -> None:
    job.send(100)
    assert "is deployed as StatefulSet" in job.deployed_twice_at_once()
    job.await_counted(job.pod_logs)
    [found] = job.answer("deploy", "status")
    assert (found["live"], len(found["attempts"])) == (True, 1)
    assert len(job.starts()) == 1
    job.assert_each_counted_once()


@pytest.mark.nightly
def test_a_job_whose_api_server_is_away_for_a_minute_goes_on_when_it_is_back(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
    """Its lease is there as well, so it is not led meanwhile; commands say who does not answer."""
    job.send(200)
    applied = job.answer("deploy", "apply")
    job.await_counted(job.pod_logs)
    began_s = time.monotonic()
    kubernetes.pause()
    try:
        job.send(200)
        while time.monotonic() - began_s < AWAY_S:
            asked = job.run("deploy", "status")
            assert asked.returncode == 1
            assert "no answer from the API server" in asked.stderr
    finally:
        kubernetes.resume()
    back_s = time.monotonic()
    job.send(200)
    job.await_counted(job.pod_logs)
    print("api_server_back_to_all_outputs_s", round(time.monotonic() - back_s, 1))
    assert {epoch_id for _, epoch_id in job.starts()} == {job.starts()[0][1]}
    [found] = job.answer("deploy", "status")
    assert (found["id"], found["live"]) == (applied["id"], True)
    job.assert_each_counted_once()


@pytest.mark.nightly
def test_a_node_that_is_lost_with_the_pod_costs_no_record_once_the_cluster_has_given_it_up(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
    """Kubernetes makes no other pod of a StatefulSet before the node is gone from its list."""
    job.send(200)
    name = job.answer("deploy", "apply")["id"]
    job.await_counted(job.pod_logs)
    job.send(200)
    began_s = time.monotonic()
    [lost] = job.nodes
    lost.kill()
    job.nodes.append(PodNode(kubernetes, job.namespace, job.pods, 2))
    job.send(200)
    assert "node-1" in job.answer("deploy", "status")[0]["attempts"][0]["where"]
    public = ("--set", "job.http.host=0.0.0.0", "--set", "job.http.port=8443")
    [target] = job.answer("deploy", "status", "--file-sd", *public)[0]["targets"]
    assert re.fullmatch(rf"{name}\.[a-z0-9-]+\.svc:8443", target)
    assert len(job.starts()) == 1
    kubernetes.call("DELETE", f"/api/v1/nodes/{lost.name}")
    job.await_counted(job.pod_logs)
    print("node_lost_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    assert [event for event, _ in job.starts()] == ["deployment", "attempt"]
    [found] = job.answer("deploy", "status")
    assert f"{name}-0 on node-2" in [one["where"] for one in found["attempts"]]
    job.assert_each_counted_once()
