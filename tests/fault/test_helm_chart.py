"""A job's chart by Helm itself: linted, rendered, and taken by the API server of Kubernetes."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.test_pods import CONFIG

from grete.cli.main import main
from grete.deploy.namespace import COLLECTIONS
from grete.testing.server_cluster import jars_directory
from grete_workbench.kube_apiserver import KubeApiServer

pytestmark = [pytest.mark.fault, pytest.mark.nightly]
PROGRAM = jars_directory("GRETE_HELM", "helm-4.0.0") / "helm"
JOB = {
    **{key: value for key, value in CONFIG.items() if key != "spark.kubernetes.namespace"},
    "systems.kafka.consumer.sasl.password": "${env:BROKERS_PASSWORD}",
    "app.text": "{{ .Values.image }} stays",
    "job.http.host": "0.0.0.0",  # noqa: S104 - of a pod
    "job.http.port": "8443",
}


def helm(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)


@pytest.fixture
def chart(home: Path, tmp_path: Path) -> Path:
    file = tmp_path / "flights.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in JOB.items()))
    assert main(["deploy", "chart", "--config", str(file), str(tmp_path / "chart")]) == 0
    return tmp_path / "chart"


def rendered(chart: Path, namespace: str, *more: str) -> dict[str, dict[str, Any]]:
    given = ("--namespace", namespace, "--set", "secrets.BROKERS_PASSWORD=se same: {{x}}", *more)
    done = helm("template", "flights", chart, *given)
    assert done.returncode == 0, done.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}


def test_helm_finds_nothing_wrong_and_wants_each_secret(chart: Path) -> None:
    assert helm("lint", "--strict", chart, "--set", "secrets.BROKERS_PASSWORD=x").returncode == 0
    without = helm("template", "flights", chart)
    assert without.returncode != 0
    assert "secrets.BROKERS_PASSWORD is not set" in without.stderr


def test_the_api_server_takes_what_helm_makes_and_values_are_where_they_belong(
    chart: Path, kubernetes: KubeApiServer
) -> None:
    namespace = f"helm-{uuid.uuid4().hex[:8]}"
    kubernetes.call(
        "POST",
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
    )
    made = rendered(chart, namespace, "--set", "image=registry.example/flights:2")
    assert set(made) == set(COLLECTIONS) - {"Pod"}
    for kind, one in made.items():
        path = f"{COLLECTIONS[kind].format(namespace)}?dryRun=All&fieldValidation=Strict"
        assert kubernetes.call("POST", path, one)["metadata"]["name"] == one["metadata"]["name"]
    secret, pod = made["Secret"], made["StatefulSet"]["spec"]["template"]["spec"]
    assert secret["stringData"]["BROKERS_PASSWORD"] == "se same: {{x}}"  # noqa: S105
    shipped = secret["stringData"]["job.properties"]
    assert "app.text={{ .Values.image }} stays" in shipped
    assert "spark.kubernetes.container.image=registry.example/flights:2" in shipped
    assert f"spark.kubernetes.namespace={namespace}" in shipped
    [ours] = pod["containers"]
    assert ours["image"] == "registry.example/flights:2"
    [volume] = [one for one in pod["volumes"] if one["name"] == "config"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]


def test_the_same_configuration_is_the_same_chart_and_another_release_another_deployment(chart: Path) -> None:
    first, again = (rendered(chart, "shop") for _ in range(2))
    assert first == again
    upgraded = rendered(chart, "shop", "--is-upgrade")
    assert upgraded["Secret"]["metadata"]["name"].startswith(first["Secret"]["metadata"]["name"][:-1])


def test_helm_installs_upgrades_and_takes_away_a_release(chart: Path, kubernetes: KubeApiServer) -> None:
    """Its objects; nothing here runs the pods of a StatefulSet."""
    namespace = f"helm-{uuid.uuid4().hex[:8]}"
    to = ("--kubeconfig", kubernetes.admin, "--namespace", namespace)
    secrets = ("--set", "secrets.BROKERS_PASSWORD=x")

    def there() -> dict[str, list[dict[str, Any]]]:
        kinds = {kind: COLLECTIONS[kind].format(namespace) for kind in rendered(chart, namespace)}
        return {kind: kubernetes.call("GET", path)["items"] for kind, path in kinds.items()}

    for words in (
        ("install", "--create-namespace"),
        ("upgrade", "--set", "image=registry.example/flights:2"),
    ):
        done = helm(words[0], "flights", chart, *to, *secrets, *words[1:])
        assert done.returncode == 0, done.stderr
    [stateful] = there()["StatefulSet"]
    assert stateful["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/flights:2"
    assert helm("uninstall", "flights", *to).returncode == 0
    ours = {
        kind: [one["metadata"]["name"] for one in items if "helm.sh/release" in str(one["metadata"])]
        for kind, items in there().items()
    }
    assert not any(ours.values()), ours
