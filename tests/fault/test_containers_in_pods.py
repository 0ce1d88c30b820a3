"""A job on Kubernetes whose containers are pods of their own, on several nodes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.fault.job_on_kafka import PATIENT
from tests.support.deployed_job import DeployedJob, PodNode, job_on_kubernetes

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(500)]
KILLED_AT = (
    "launch.started",
    "coordinator.launched",
    "change.adopted",
    "change.granted",
    "container.locality-written",
    "container.fence-raised",
    "executor.before-commit",
    "executor.committed",
)
SILENT_S = 15.0
SEVERAL = {"spark.executor.cores": "1", "job.container.count": "2"}


@pytest.fixture
def job(
    request: pytest.FixtureRequest,
    kubernetes: KubeApiServer,
    kafka: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[DeployedJob]:
    """Of two containers; the parameter is how many executors each has, in pods of their own."""
    settings = {**PATIENT, **SEVERAL, "spark.executor.instances": getattr(request, "param", "0")}
    with job_on_kubernetes(kubernetes, kafka, tmp_path, monkeypatch, settings) as made:
        yield made


def containers(job: DeployedJob) -> dict[str, str]:
    """The pods in which containers run, by the containers' numbers."""
    [found] = job.answer("deploy", "status")
    running = [one for one in found["containers"] if one["state"].startswith("running")]
    return {one["container"]: one["where"].partition(" ")[0] for one in running}


def places(job: DeployedJob) -> dict[str, str]:
    """The pods of containers that have not ended, by the containers' numbers."""
    [found] = job.answer("deploy", "status")
    there = [one for one in found["containers"] if not one["state"].startswith("terminated")]
    return {one["container"]: one["where"].partition(" ")[0] for one in there}


def pid(job: DeployedJob, pod: str) -> int:
    return int((job.pods / pod / "pid").read_text())


@pytest.mark.parametrize("job", ["0", "1"], indirect=True)
def test_containers_that_are_pods_outlive_their_coordinator_and_are_started_again_elsewhere(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
    """The coordinator is killed, then a container, then the coordinator's node is lost; at last all is stopped."""
    job.nodes.append(PodNode(kubernetes, job.namespace, job.pods, 2))
    job.send(200)
    name = job.answer("deploy", "apply")["id"]
    job.await_counted(job.pod_logs)
    first = containers(job)
    assert set(first) == {"0", "1"}, job.pod_logs()

    os.kill(pid(job, f"{name}-0"), signal.SIGKILL)
    job.send(200)
    job.await_counted(job.pod_logs)
    eventually(lambda: len(job.starts()) == 2, "another attempt", context=job.pod_logs)
    eventually(
        lambda: sum(row.event == "container-adopted" for row in job.history()) == 2,
        "both adopted",
        context=job.pod_logs,
    )
    assert containers(job) == first

    began_s = time.monotonic()
    os.kill(pid(job, first["0"]), signal.SIGKILL)
    job.send(200)
    job.await_counted(job.pod_logs)
    print("killed_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    second = containers(job)
    assert second["0"] != first["0"]
    assert second["1"] == first["1"]
    [ended] = [row.details for row in job.history() if row.event == "container-exited"]
    assert ended["exit_code"] == "-9", ended

    [found] = job.answer("deploy", "status")
    lose(job, kubernetes, found["attempts"][0]["where"].rpartition(" ")[2], PodNode.kill)
    eventually(lambda: len(job.starts()) == 3, "an attempt elsewhere", context=job.pod_logs)
    assert job.run("stop").returncode == 0
    job.await_state("stopped", job.pod_logs)
    eventually(lambda: not containers(job), "no container", context=job.pod_logs)
    job.assert_each_counted_once()
    assert job.answer("deploy", "kill") == {"ended": [name]}
    assert job.answer("deploy", "status") == []


def test_a_drained_node_a_lost_one_and_more_containers_cost_no_record(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
    """A drain asks for the end of pods; a lost node says nothing, and is given up by the cluster."""
    job.nodes.append(PodNode(kubernetes, job.namespace, job.pods, 2))
    job.send(200)
    name = job.answer("deploy", "apply")["id"]
    job.await_counted(job.pod_logs)
    pods = f"/api/v1/namespaces/{job.namespace}/pods"
    drained = containers(job)["0"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": drained}}
    kubernetes.call("POST", f"{pods}/{drained}/eviction", eviction)
    job.send(200)
    job.await_counted(job.pod_logs)
    eventually(lambda: containers(job).get("0", drained) != drained, "another pod", context=job.pod_logs)
    [ended] = [row.details for row in job.history() if row.event == "container-exited"]
    assert (ended["exit_code"], ended["meaning"]) == ("6", "stopped"), ended

    for wanted in ("node-1", "node-2"):
        assert job.run("container", "move", "1", "--to", wanted).returncode == 0
        eventually(lambda to=wanted: hosts(job).get("1") == to, f"1 on {wanted}", context=job.pod_logs)
    assert job.run("container", "move", "0", "--to", "nowhere").returncode == 0

    def is_refused() -> bool:
        return any("nowhere does not take it" in row.details.get("reason", "") for row in job.history())

    eventually(is_refused, "no such host", within_s=90, context=job.pod_logs)
    eventually(lambda: "0" in containers(job), "it goes elsewhere", context=job.pod_logs)

    assert job.run("config", "set", "job.container.count=1").returncode == 0
    eventually(lambda: set(containers(job)) == {"0"}, "one container", context=job.pod_logs)
    job.send(200)
    job.await_counted(job.pod_logs)
    assert job.run("config", "set", "job.container.count=2").returncode == 0
    eventually(lambda: set(containers(job)) == {"0", "1"}, "two containers", context=job.pod_logs)

    muted = node_of(job, containers(job)["1"])
    job.nodes.append(PodNode(kubernetes, job.namespace, job.pods, 3))
    lose(job, kubernetes, muted, PodNode.mute)
    lose(job, kubernetes, node_of(job, containers(job)["1"]), PodNode.kill)
    job.assert_each_counted_once()
    assert job.answer("deploy", "kill") == {"ended": [name]}


def test_a_container_for_which_no_node_has_room_is_asked_for_once_and_begins_when_there_is_some(
    job: DeployedJob, kubernetes: KubeApiServer
) -> None:
    """It waits for longer than a container may be silent, as for a node that the cluster's autoscaler adds."""
    job.configure({"job.coordinator.monitor-container.silent.ms": str(round(patient(SILENT_S) * 1000))})
    job.send(200)
    name = job.answer("deploy", "apply")["id"]
    job.await_counted(job.pod_logs)
    first = containers(job)

    def cordon(is_closed: bool) -> None:
        node = kubernetes.call("GET", "/api/v1/nodes/node-1")
        kubernetes.call("PUT", "/api/v1/nodes/node-1", node | {"spec": {"unschedulable": is_closed}})

    def status() -> str:
        return job.run("status").stdout

    cordon(is_closed=True)
    os.kill(pid(job, first["0"]), signal.SIGKILL)
    said = "has not begun, the cluster manager says: Unschedulable 0/1 nodes are available"
    eventually(lambda: said in status(), "it is said why it waits", context=status)
    waiting = places(job)["0"]
    time.sleep(2.5 * patient(SILENT_S))
    assert said in status()
    assert places(job)["0"] == waiting, "nothing else was asked for meanwhile"
    cordon(is_closed=False)
    job.send(200)
    job.await_counted(job.pod_logs)
    assert containers(job)["0"] == waiting
    [ended] = [row.details for row in job.history() if row.event == "container-exited"]
    assert ended["exit_code"] == "-9", ended
    job.assert_each_counted_once()
    assert job.answer("deploy", "kill") == {"ended": [name]}


def lose(job: DeployedJob, kubernetes: KubeApiServer, name: str, how: Callable[[PodNode], None]) -> None:
    """Something happens to the node, and the cluster gives it up: the job goes on without it."""
    job.send(200)
    began_s = time.monotonic()
    how(next(one for one in job.nodes if one.name == name))
    job.send(200)
    kubernetes.call("DELETE", f"/api/v1/nodes/{name}")
    job.await_counted(job.pod_logs)
    print(f"{how.__name__}_to_all_outputs_s", round(time.monotonic() - began_s, 1))
    assert name not in {node_of(job, pod) for pod in containers(job).values()}


def test_coordinators_and_containers_that_die_at_any_step_lose_and_double_nothing(
    job: DeployedJob, tmp_path: Path
) -> None:
    """Pods that were made and are in nobody's books, too. Each point kills one process."""
    once = tmp_path / "once"
    variables = [
        {"name": "GRETE_FAILPOINT", "value": ",".join(f"{point}:kill" for point in KILLED_AT)},
        {"name": "GRETE_FAILPOINT_ONCE", "value": str(once)},
    ]
    template = tmp_path / "pod.yml"
    template.write_text(
        yaml.safe_dump({"kind": "Pod", "spec": {"containers": [{"name": "grete", "env": variables}]}})
    )
    job.configure({"spark.kubernetes.driver.podTemplateFile": str(template)})
    job.send(400)
    name = job.answer("deploy", "apply")["id"]
    job.await_counted(job.pod_logs, still_s=180.0)  # a lease's wait after each point, before the first record
    eventually(lambda: set(containers(job)) == {"0", "1"}, "both containers", context=job.pod_logs)
    assert job.run("container", "restart", "1").returncode == 0
    eventually(
        lambda: len(list(once.iterdir())) == len(KILLED_AT), "all points", within_s=120, context=job.pod_logs
    )
    job.send(200)
    job.await_counted(job.pod_logs)
    job.assert_each_counted_once()
    assert job.answer("deploy", "kill") == {"ended": [name]}


def hosts(job: DeployedJob) -> dict[str, str]:
    """Where the job itself says that its containers run."""
    return {one["container"]: one["host"] for one in job.answer("container", "list")}


def node_of(job: DeployedJob, pod: str) -> str:
    [found] = job.answer("deploy", "status")
    return next(
        one["where"].rpartition(" ")[2] for one in found["containers"] if one["where"].startswith(f"{pod} ")
    )


def test_a_job_of_pods_ends_when_all_is_consumed_or_by_the_words_of_the_container_that_failed(
    job: DeployedJob, tmp_path: Path
) -> None:
    """They come from the pod's last words: nobody else sees its folder."""
    job.send(100)
    name = job.answer("deploy", "apply", "--until-drained")["id"]
    job.await_counted(job.pod_logs)
    job.await_state("finished", job.pod_logs)
    [found] = job.answer("deploy", "status")
    assert [one["state"] for one in found["containers"]] == ["terminated Completed"] * 2
    assert job.answer("deploy", "kill") == {"ended": [name]}

    job.fail_at(150)
    job.send(100)
    job.answer("deploy", "apply")
    job.await_state("failed", job.pod_logs)
    job.assert_failed_at(150)
