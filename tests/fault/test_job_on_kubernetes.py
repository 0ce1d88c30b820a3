"""A job whose leader is elected on Kubernetes: run, killed, succeeded; its Lease deleted by hand, its rights checked.

The real coordinator and containers, without Spark; streams are in the embedded system.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.coordination.kubernetes.lease import lease_name
from grete.metadata.job_state import JobState
from grete.model.fence import job_scope
from grete.model.ids import JobId
from grete.operations import open_job
from grete.testing.waiting import eventually, patient
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]
JOB = JobId("counter")
PROPERTIES = """
job.name=counter
job.application.path=.
job.coordinator.factory=kubernetes
job.coordinator.lease.ttl.ms=3000
task.class=counter:Counter
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
"""


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def job(
    kubernetes: KubeApiServer,
    prefix: str,
    tmp_path: Path,
    job_maker: Callable[..., Any],
    counter_application: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    made = job_maker(tmp_path, counter_application, PROPERTIES)
    made.configure(
        {
            "job.coordinator.kubernetes.kubeconfig": str(kubernetes.admin),
            "job.coordinator.kubernetes.lease.prefix": prefix,
        }
    )
    monkeypatch.setenv("GRETE_HOME", str(made.home))
    return made


def lease(prefix: str) -> str:
    name = lease_name(prefix, job_scope(JOB))
    return f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}"


@contextmanager
def coordinator(job: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(job.without_spark(), env=job.environment(), stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def state() -> JobState:
    with open_job(JOB) as handle:
        found = handle.state()
    assert found is not None
    return found


def grete(job: Any, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*job.command()[:3], *words, "-o", "json"]
    return subprocess.run(command, env=job.environment(), capture_output=True, text=True, timeout=patient(60))


def test_a_job_runs_to_its_end_and_leaves_a_lease_without_a_holder(
    job: Any, kubernetes: KubeApiServer, prefix: str
) -> None:
    job.fill(500)
    done = job.run(spark=False)
    assert done.returncode == 0, done.stderr
    job.assert_exactly_once(500)
    document = kubernetes.call("GET", lease(prefix))
    assert document["spec"].get("holderIdentity", "") == ""
    assert int(document["metadata"]["annotations"]["grete/epoch"]) == state().epoch


def test_a_killed_coordinator_is_succeeded_after_its_lease_and_a_deleted_lease_costs_an_incarnation(
    job: Any, kubernetes: KubeApiServer, prefix: str
) -> None:
    """Under epochs that grow, with each record counted once."""
    job.fill(300)
    with coordinator(job) as first:
        job.wait_until_counted(300)
        epoch = state().epoch
        shown = json.loads(grete(job, "status", "--job", "counter").stdout)
        identity = kubernetes.call("GET", lease(prefix))["spec"]["holderIdentity"]
        assert f"_{first.pid}_" in identity
        assert str(first.pid) in json.dumps(shown)
    with coordinator(job) as second:
        eventually(lambda: state().epoch > epoch, "another coordinator leads", context=job.report)
        epoch = state().epoch
        kubernetes.call("DELETE", lease(prefix))
        eventually(lambda: state().epoch > epoch, "another incarnation leads", context=job.report)
        job.fill(300)
        job.wait_until_counted(600)
        assert second.poll() is None
        assert grete(job, "stop", "--job", "counter").returncode == 0
        assert second.wait(patient(60)) == 0
    with open_job(JOB) as handle:
        assert "container-adopted" in [row.event for row in handle.history()]
    epochs = int(kubernetes.call("GET", lease(prefix))["metadata"]["annotations"]["grete/epoch"])
    assert epochs == state().epoch > epoch


def test_the_doctor_says_which_rights_on_leases_are_missing(
    job: Any, kubernetes: KubeApiServer, tmp_path: Path
) -> None:
    def findings() -> dict[str, dict[str, Any]]:
        done = subprocess.run(
            [*job.command("doctor"), "-o", "json"], env=job.environment(), capture_output=True, text=True
        )
        return {found["check"]: found for found in json.loads(done.stdout)}

    found = findings()["kubernetes"]
    assert found["ok"], found
    assert "may get, create, update leases in namespace default" in found["found"]
    job.configure({"job.coordinator.kubernetes.kubeconfig": str(kubernetes.nobody)})
    refused = findings()["kubernetes"]
    assert not refused["ok"]
    assert "may not get, create, update leases" in refused["found"]
    assert "Role" in refused["way_out"]
    job.configure({"job.coordinator.kubernetes.kubeconfig": str(tmp_path / "missing")})
    assert "no API server to elect leaders on" in findings()["kubernetes"]["found"]
