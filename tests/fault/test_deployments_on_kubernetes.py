"""Deployments as the API server of Kubernetes takes them; nothing runs pods here."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.test_pods import TEMPLATE

from grete.assembly.submission import RunOptions
from grete.config.properties import parse_properties
from grete.deploy.deployment import Deployment, prepare
from grete.deploy.kubernetes import Kubernetes
from grete.deploy.manifests import RULES, manifests
from grete.errors import CoordinationError, JobError
from grete.testing.server_cluster import ServerFailed
from grete.testing.waiting import eventually
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = pytest.mark.fault
MANAGER = Kubernetes()
POLICIES = Path(__file__).parents[2] / "packaging" / "kubernetes" / "network-policy.yml"
EXECUTORS = Path(__file__).parents[2] / "packaging" / "image" / "executor.yml"
_HOLDS = "grete.test/holds"
SECRET = "wonder-4f1c-land"  # noqa: S105 - of this test alone
Make = Callable[..., Deployment]


@pytest.fixture
def make(kubernetes: KubeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Deployments of one job."""
    monkeypatch.setenv("BROKERS_PASSWORD", SECRET)
    job = f"counting-{uuid.uuid4().hex[:8]}"

    def prepared(settings: Mapping[str, str] | None = None) -> Deployment:
        config = {
            "job.name": job,
            "task.class": "counting:Counting",
            "task.inputs": "kafka.in",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": "kafka:9092",
            "systems.kafka.consumer.sasl.password": "${env:BROKERS_PASSWORD}",
            "spark.master": "k8s://https://kubernetes.default.svc",
            "spark.kubernetes.container.image": "registry.example/flights:1",
            "job.coordinator.kubernetes.kubeconfig": str(kubernetes.admin),
            **(settings or {}),
        }
        return prepare(RunOptions(config=config), tmp_path)

    yield prepared
    MANAGER.kill(prepared())


@pytest.mark.every_run
def test_the_api_server_takes_the_manifests_strictly_and_makes_nothing(
    make: Make, kubernetes: KubeApiServer, tmp_path: Path
) -> None:
    deployment = make()
    MANAGER.check(deployment)
    assert MANAGER.status(deployment) == []
    template = tmp_path / "pod.yml"
    template.write_text(TEMPLATE)
    public = {"job.http.host": "0.0.0.0", "job.http.port": "8443"}  # noqa: S104 - of a pod
    MANAGER.check(make({**public, "spark.kubernetes.driver.podTemplateFile": str(template)}))
    broken = make({"spark.driver.cores": "many"})
    with pytest.raises(CoordinationError, match="quantities must match"):
        MANAGER.check(broken)


def test_a_pod_is_let_into_a_namespace_that_takes_restricted_ones_alone(
    make: Make, kubernetes: KubeApiServer
) -> None:
    """The real server's admission looks at the pod that the StatefulSet would make."""
    namespace = f"restricted-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = {"kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    kubernetes.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", **made})
    deployment = make({"spark.kubernetes.namespace": namespace})
    MANAGER.apply(deployment, replace=False)
    [*_, stateful_set] = manifests(deployment, namespace, {"BROKERS_PASSWORD": "x"})
    pod = {"apiVersion": "v1", "kind": "Pod", **stateful_set["spec"]["template"]}
    pod["metadata"]["name"] = "tried"
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    assert kubernetes.call("POST", path, pod)["metadata"]["name"] == "tried"
    template = yaml.safe_load(EXECUTORS.read_text())
    [executor] = template["spec"]["containers"]
    executor["image"] = "registry.example/flights:1"  # which Spark adds
    template["spec"]["serviceAccountName"] = deployment.name  # nobody makes the default one here
    assert kubernetes.call("POST", path, {**template, "metadata": {"name": "executor"}})
    del pod["spec"]["securityContext"]
    with pytest.raises(ServerFailed, match="violates PodSecurity"):
        kubernetes.call("POST", path, pod)


def test_the_network_policies_are_taken_and_choose_the_pods_of_a_job(
    make: Make, kubernetes: KubeApiServer
) -> None:
    for_jobs, for_executors = yaml.safe_load_all(POLICIES.read_text())
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?dryRun=All&fieldValidation=Strict"
    for policy in (for_jobs, for_executors):
        assert kubernetes.call("POST", path, policy)["metadata"]["name"] == policy["metadata"]["name"]
    public = {"job.http.host": "0.0.0.0", "job.http.port": "8443"}  # noqa: S104 - of a pod
    [*_, stateful_set] = manifests(make(public), "default", {"BROKERS_PASSWORD": "x"})
    pod = stateful_set["spec"]["template"]
    assert for_jobs["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    [ours] = pod["spec"]["containers"]
    named = {port["port"] for rule in for_jobs["spec"]["ingress"] for port in rule.get("ports", ())}
    assert named == {port["name"] for port in ours["ports"]}


def test_a_job_is_deployed_once_until_it_is_replaced_or_killed(make: Make, kubernetes: KubeApiServer) -> None:
    first, second = make(), make()
    assert MANAGER.apply(first, replace=False).id == first.name
    with pytest.raises(JobError, match=f"deployment {first.id}.*--replace"):
        MANAGER.apply(second, replace=False)
    assert secrets(kubernetes, first) == [f"{first.name}-{first.id}"]
    MANAGER.apply(second, replace=True)
    [found] = MANAGER.status(second)
    assert second.id in found.state
    assert secrets(kubernetes, first) == [f"{first.name}-{second.id}"]
    assert MANAGER.kill(second) == [second.name]
    assert MANAGER.kill(second) == []
    assert secrets(kubernetes, first) == []


def test_a_deployment_that_comes_while_another_waits_for_pods_to_end_keeps_its_secret(
    make: Make, kubernetes: KubeApiServer
) -> None:
    """The one that waits is refused, and has removed the Secret of what it has ended alone."""
    before, waiting, faster = make(), make(), make()
    MANAGER.apply(before, replace=False)
    pod = slow_pod(kubernetes, before)
    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(MANAGER.apply, waiting, replace=True)
        eventually(lambda: not MANAGER.status(before), "the StatefulSet is removed")
        MANAGER.apply(faster, replace=False)
        let_go(kubernetes, pod)
        with pytest.raises(JobError, match=f"deployment {faster.id}.*--replace"):
            replacing.result()
    [found] = MANAGER.status(faster)
    assert found.state == f"deployment {faster.id}"
    assert secrets(kubernetes, faster) == [f"{faster.name}-{faster.id}"]


def slow_pod(kubernetes: KubeApiServer, deployment: Deployment) -> str:
    """The path of a pod of a deployment that ends when it is `let_go`, as one does that takes its time."""
    collection, name = "/api/v1/namespaces/default/pods", f"{deployment.name}-0"
    labels = {"grete/job": deployment.name, "grete/deployment": deployment.id}
    container = {"name": "driver", "image": "registry.example/flights:1"}
    kubernetes.call(
        "POST",
        collection,
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": labels, "finalizers": [_HOLDS]},
            "spec": {"serviceAccountName": deployment.name, "containers": [container]},
        },
    )
    return f"{collection}/{name}"


def let_go(kubernetes: KubeApiServer, pod: str) -> None:
    found = kubernetes.call("GET", pod)
    del found["metadata"]["finalizers"]
    kubernetes.call("PUT", pod, found)


def secrets(kubernetes: KubeApiServer, deployment: Deployment) -> list[str]:
    found = kubernetes.call(
        "GET", f"/api/v1/namespaces/default/secrets?labelSelector=grete/job={deployment.name}"
    )
    return [each["metadata"]["name"] for each in found["items"]]


def test_secrets_are_in_the_deployments_secret_alone(make: Make, kubernetes: KubeApiServer) -> None:
    deployment = make()
    plan = MANAGER.plan(deployment)
    assert SECRET not in plan.text
    MANAGER.apply(deployment, replace=False)
    made: dict[str, Any] = kubernetes.call(
        "GET", f"/api/v1/namespaces/default/secrets/{deployment.name}-{deployment.id}"
    )
    data = {name: base64.b64decode(text).decode() for name, text in made["data"].items()}
    assert data["BROKERS_PASSWORD"] == SECRET
    config = parse_properties(data["job.properties"], origin="the Secret")
    assert config["systems.kafka.consumer.sasl.password"] == "${env:BROKERS_PASSWORD}"
    assert config["job.coordinator.factory"] == "kubernetes"
    assert "job.coordinator.kubernetes.kubeconfig" not in config, "the pod has a service account"
    shown = str(kubernetes.call("GET", f"/apis/apps/v1/namespaces/default/statefulsets/{deployment.name}"))
    assert SECRET not in shown


def test_the_pods_account_may_do_what_its_rules_name_and_no_more(
    make: Make, kubernetes: KubeApiServer
) -> None:
    deployment = make()
    MANAGER.apply(deployment, replace=False)

    def may(verb: str, group: str, resource: str) -> bool:
        user = f"system:serviceaccount:default:{deployment.name}"
        attributes = {"namespace": "default", "verb": verb, "group": group, "resource": resource}
        asked = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        answer = kubernetes.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)
        return bool(answer["status"]["allowed"])

    for rule in RULES:
        [group], [resource] = rule["apiGroups"], rule["resources"]
        assert all(may(verb, group, resource) for verb in rule["verbs"])
    for verb, group, resource in (
        ("get", "", "secrets"),
        ("delete", "coordination.k8s.io", "leases"),
        ("update", "apps", "statefulsets"),
        ("create", "", "pods/exec"),
        ("create", "rbac.authorization.k8s.io", "roles"),
    ):
        assert not may(verb, group, resource), (verb, resource)


def test_resources_of_samza_are_those_of_the_pod(make: Make) -> None:
    deployment = make({"yarn.am.container.memory.mb": "2048", "yarn.am.container.cpu.cores": "2"})
    [stateful_set] = [each for each in manifests(deployment, "jobs", {}) if each["kind"] == "StatefulSet"]
    [container] = stateful_set["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"memory": f"{2048 + 384 + 768}Mi", "cpu": "2"}
