"""A job that Kubernetes runs: its process killed, its pod replaced, and stopped by its configuration alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deployed_job import DeployedJob, job_on_kubernetes

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.kube_apiserver import KubeApiServer
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def job(
    kubernetes: KubeApiServer, kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeployedJob]:
    with job_on_kubernetes(kubernetes, kafka, tmp_path, monkeypatch) as made:
        yield made


def test_a_pod_that_is_killed_or_replaced_is_followed_by_an_attempt_that_loses_and_doubles_nothing(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
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
    os.kill(pid(), signal.SIGKILL)
    job.send(200)
    job.await_counted(said)
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
    assert job.answer("deploy", "kill") == {"ended": [name]}
    assert job.answer("deploy", "status") == []
