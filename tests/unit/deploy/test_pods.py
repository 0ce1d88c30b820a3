"""The pod of a deployment on Kubernetes: what it may do, how others reach it, what an operator adds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from grete.assembly.submission import RunOptions
from grete.cli.main import main
from grete.config.properties import parse_properties
from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.deploy.deployment import prepare
from grete.deploy.kubernetes import Kubernetes
from grete.errors import ConfigError
from grete.launch.factory import LaunchContext, open_launcher

CONFIG = {
    "job.name": "counting",
    "task.class": "counting:Counting",
    "task.inputs": "kafka.in",
    "systems.kafka.samza.factory": "kafka",
    "systems.kafka.producer.bootstrap.servers": "kafka:9092",
    "spark.master": "k8s://https://kubernetes.default.svc",
    "spark.kubernetes.container.image": "flights:1",
    "spark.kubernetes.namespace": "jobs",
}
PUBLIC = {"job.http.host": "0.0.0.0", "job.http.port": "8443"}  # noqa: S104 - of a pod
TEMPLATE = """
kind: Pod
metadata:
  labels: {team: flights, grete/job: not-ours}
spec:
  nodeSelector: {disk: fast}
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsNonRoot: true}
  volumes: [{name: certificate, secret: {secretName: jobs-tls}}, {name: home, emptyDir: {medium: Memory}}]
  containers:
    - name: sidecar
      image: proxy:1
    - name: main
      image: not-ours
      env: [{name: TEAM, value: flights}, {name: GRETE_HOME, value: /elsewhere}]
      volumeMounts: [{name: certificate, mountPath: /etc/certificate}]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def planned(home: Path, **config: str) -> dict[str, Any]:
    """The objects of the plan, by their kind."""
    deployment = prepare(RunOptions(config={**CONFIG, **config}), home)
    return {each["kind"]: each for each in yaml.safe_load_all(Kubernetes().plan(deployment).text)}


def pod_of(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["StatefulSet"]["spec"]["template"]
    return found


def test_a_pod_has_what_the_restricted_standard_of_kubernetes_wants(home: Path) -> None:
    spec = pod_of(planned(home))["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert [one["securityContext"] for one in spec["containers"]] == [context]


def test_a_job_for_other_machines_has_a_service_a_probe_and_what_prometheus_looks_for(home: Path) -> None:
    made = planned(home, **PUBLIC)
    name = made["StatefulSet"]["metadata"]["name"]
    pod, service = pod_of(made), made["Service"]
    assert service["metadata"]["name"] == made["StatefulSet"]["spec"]["serviceName"] == name
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    [port] = container["ports"]
    assert (port["containerPort"], port["name"]) == (8443, service["spec"]["ports"][0]["targetPort"])
    assert container["readinessProbe"]["httpGet"] == {
        "path": "/healthz",
        "port": port["name"],
        "scheme": "HTTPS",
    }
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == "8443"
    shipped = parse_properties(made["Secret"]["stringData"]["job.properties"], origin="the plan")
    assert shipped["job.http.names"].split(",")[0] == f"{name}.jobs.svc"
    without = planned(home)
    assert "Service" not in without
    assert not {"ports", "readinessProbe"} & pod_of(without)["spec"]["containers"][0].keys()


def test_a_template_adds_to_the_pod_and_takes_nothing_from_it(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "pod.yml"
    file.write_text(TEMPLATE)
    key = "spark.kubernetes.driver.podTemplate"
    made = planned(home, **{f"{key}File": str(file), f"{key}ContainerName": "main"})
    pod, spec = pod_of(made), pod_of(made)["spec"]
    assert pod["metadata"]["labels"]["team"] == "flights"
    assert pod["metadata"]["labels"]["grete/job"] == made["StatefulSet"]["metadata"]["name"]
    assert (spec["nodeSelector"], spec["restartPolicy"]) == ({"disk": "fast"}, "Always")
    assert spec["securityContext"] == {"runAsUser": 1000, "runAsNonRoot": True}
    assert [(one["name"], "medium" in one.get("emptyDir", {})) for one in spec["volumes"]] == [
        ("config", False),
        ("home", False),
        ("certificate", False),
    ]
    ours, sidecar = spec["containers"]
    assert (ours["name"], ours["image"], sidecar["name"]) == ("grete", "flights:1", "sidecar")
    variables = {one["name"]: one.get("value") for one in ours["env"]}
    assert (variables["TEAM"], variables["GRETE_HOME"]) == ("flights", "/var/lib/grete")
    assert [one["name"] for one in ours["volumeMounts"]] == ["config", "home", "certificate"]
    assert set(ours["resources"]["limits"]) == {"memory", "nvidia.com/gpu"}
    shipped = parse_properties(made["Secret"]["stringData"]["job.properties"], origin="the plan")
    assert f"{key}File" not in shipped, "a file of the machine that deploys"


def test_a_secret_that_the_template_refers_to_stays_where_it_is(home: Path, tmp_path: Path) -> None:
    """The cluster has it already, and whoever deploys need not know it."""
    file = tmp_path / "pod.yml"
    kept = {"name": "LAKE_KEY", "valueFrom": {"secretKeyRef": {"name": "lake", "key": "key"}}}
    file.write_text(
        yaml.safe_dump({"kind": "Pod", "spec": {"containers": [{"name": "main", "env": [kept]}]}})
    )
    made = planned(
        home,
        **{
            "spark.kubernetes.driver.podTemplateFile": str(file),
            "spark.hadoop.fs.s3a.secret.key": "${env:LAKE_KEY}",
            "spark.hadoop.fs.s3a.access.key": "${env:LAKE_ID}",
        },
    )
    [ours] = pod_of(made)["spec"]["containers"]
    [reference] = [one for one in ours["env"] if one["name"] == "LAKE_KEY"]
    assert reference == kept
    assert "LAKE_KEY" not in made["Secret"]["stringData"]
    assert "LAKE_ID" in made["Secret"]["stringData"]


def test_containers_of_several_have_a_pod_each_that_is_made_as_the_coordinators_is(
    home: Path, tmp_path: Path
) -> None:
    """With what the template adds, apart from one another, and given up soon where their node is lost."""
    file = tmp_path / "pod.yml"
    file.write_text(TEMPLATE)
    key = "spark.kubernetes.driver.podTemplate"
    template = {f"{key}File": str(file), f"{key}ContainerName": "main"}
    several = {"job.container.count": "3", "spark.executor.instances": "0", "spark.executor.cores": "2"}
    made = planned(
        home, **template, **several, **PUBLIC, **{"systems.kafka.consumer.sasl.password": "${env:PASS}"}
    )
    pod = json.loads(made["Secret"]["stringData"]["container-pod.json"])
    coordinator = pod_of(made)
    assert made["Service"]["spec"]["selector"].items() <= coordinator["metadata"]["labels"].items()
    assert not made["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert (
        not made["StatefulSet"]["spec"]["selector"]["matchLabels"].items()
        <= pod["metadata"]["labels"].items()
    )
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["nodeSelector"]) == ("Never", {"disk": "fast"})
    assert {one["tolerationSeconds"] for one in spec["tolerations"]} == {30}
    assert spec["affinity"]["podAntiAffinity"]
    ours, sidecar = spec["containers"]
    assert sidecar["name"] == "sidecar"
    assert ours["command"] == ["python3", "-m", "grete.spark.container"]
    assert not {"ports", "readinessProbe"} & ours.keys()
    variables = {one["name"]: one for one in ours["env"]}
    assert variables["PASS"]["valueFrom"]["secretKeyRef"]["name"] == made["Secret"]["metadata"]["name"]
    assert variables["GRETE_EXIT_FILE"]["value"] == ours["terminationMessagePath"]
    assert ours["resources"]["requests"] == {"memory": "3200Mi", "cpu": "2"}, "an executor's share, too"
    assert coordinator["spec"]["containers"][0]["resources"]["requests"] == {"memory": "512Mi", "cpu": "500m"}
    shipped = parse_properties(made["Secret"]["stringData"]["job.properties"], origin="the plan")
    assert shipped["job.launcher"] == "kubernetes"


@pytest.mark.parametrize(
    ("config", "launcher"),
    [
        ({}, "thread"),
        ({"job.launcher": "kubernetes"}, "kubernetes"),
        ({"job.container.count": "2"}, "kubernetes"),
    ],
)
def test_one_container_is_in_its_coordinators_pod_unless_one_of_its_own_is_asked_for(
    home: Path, config: dict[str, str], launcher: str
) -> None:
    files = planned(home, **config)["Secret"]["stringData"]
    assert parse_properties(files["job.properties"], origin="the plan")["job.launcher"] == launcher
    assert ("container-pod.json" in files) == (launcher == "kubernetes")


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("kubernetes", r"containers are pods where spark\.master=k8s"),
        ("yarn", r"containers are applications where spark\.master=yarn"),
    ],
)
def test_containers_with_places_of_their_own_need_a_deployment_on_their_manager(
    launcher: str, said: str
) -> None:
    settings = {**CONFIG, "job.launcher": launcher, "spark.master": "local[1]"}
    with pytest.raises(ConfigError, match=rf"job\.launcher={launcher}: {said}"):
        validate(settings)
    context = LaunchContext(Settings.of({**CONFIG, "job.launcher": launcher}), [], lambda *_: 0, Path())
    with pytest.raises(ConfigError, match="use `grete deploy apply`"):
        open_launcher(context)


def test_what_is_wrong_with_a_deployment_names_the_master_that_was_written(home: Path) -> None:
    embedded = {"systems.kafka.samza.factory": "local", "spark.executor.instances": "0"}
    with pytest.raises(
        ConfigError, match=r"spark\.master=k8s://https://kubernetes\.default\.svc: system 'kafka'"
    ):
        planned(home, **embedded)


def test_a_pod_without_executors_runs_its_tasks_on_its_own_cores() -> None:
    spark = Settings.of(
        {**CONFIG, "spark.executor.instances": "0", "cluster-manager.container.cpu.cores": "3"}
    ).spark
    assert (spark.master, spark.is_local, spark.cores) == ("local[3]", True, 3)
    assert "spark.executor.instances" not in spark.options, "Spark refuses a 0"
    assert not Settings.of({**CONFIG, "spark.executor.instances": "1"}).spark.is_local


def test_an_empty_template_changes_nothing(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "pod.yml"
    file.write_text("kind: Pod\nspec:\n  volumes:\n  containers:\nmetadata:\n")
    with_one = pod_of(planned(home, **{"spark.kubernetes.driver.podTemplateFile": str(file)}))["spec"]
    without = pod_of(planned(home))["spec"]
    assert set(with_one) == set(without)
    assert with_one["securityContext"] == without["securityContext"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("a: [", "while parsing"),
        ("- 1", "is not the YAML of one Pod"),
        ("kind: Deployment", "is not the YAML of one Pod"),
        ("spec: {containers: [{name: other}]}", "no container has the name 'main'"),
        ("spec: 5", "spec is no object"),
        ("spec: {containers: main}", "containers is no list"),
        ("spec: {containers: [main]}", "an element of containers is no object"),
        ("spec: {volumes: [home]}", "an element of volumes is no object"),
        ("metadata: {labels: [a]}", "labels is no object"),
        ("spec: {containers: [{name: main, resources: 5}]}", "resources is no object"),
    ],
)
def test_a_template_that_is_no_pod_is_named(
    home: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "pod.yml"
    if content is not None:
        file.write_text(content)
    key = "spark.kubernetes.driver.podTemplate"
    with pytest.raises(ConfigError, match=said) as refused:
        planned(home, **{f"{key}File": str(file), f"{key}ContainerName": "main"})
    assert str(file) in str(refused.value)


def chart(home: Path, folder: Path, **config: str) -> tuple[int, str]:
    file = home / "flights.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**CONFIG, **config}.items()))
    return main(["deploy", "chart", "--config", str(file), str(folder)]), str(folder)


def test_a_chart_has_the_objects_of_the_plan_and_no_secret(home: Path, tmp_path: Path) -> None:
    lake = {"spark.hadoop.fs.s3a.secret.key": "${env:LAKE_KEY}", "app.text": "{{ stays }}"}
    assert chart(home, tmp_path / "chart", **lake)[0] == 0
    templates = (tmp_path / "chart" / "templates" / "job.yaml").read_text()
    kinds = re.findall(r"^kind: (\w+)$", templates, re.MULTILINE)
    assert kinds == ["ServiceAccount", "Role", "RoleBinding", "Secret", "StatefulSet"]
    values = yaml.safe_load((tmp_path / "chart" / "values.yaml").read_text())
    assert values == {"image": "flights:1", "secrets": {"LAKE_KEY": ""}}
    assert '{{ "{{" }} stays }}' in templates
    before = templates
    assert chart(home, tmp_path / "chart", **lake)[0] == 0
    assert (tmp_path / "chart" / "templates" / "job.yaml").read_text() == before


def test_a_chart_with_a_secret_itself_or_into_a_folder_of_something_else_is_refused(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chart(home, tmp_path / "chart", **{"spark.hadoop.fs.s3a.secret.key": "hunter2hunter2"})[0] == 2
    said = capsys.readouterr().err
    assert "spark.hadoop.fs.s3a.secret.key" in said
    assert "hunter2" not in said
    assert not (tmp_path / "chart").exists()
    assert chart(home, home)[0] == 2
    assert "is no chart, and not empty" in capsys.readouterr().err
