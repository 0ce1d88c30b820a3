"""Deployments: their names, refusals, archives and secrets, and what is asked of cluster managers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from grete.assembly.submission import RunOptions
from grete.cli.main import main
from grete.config.properties import parse_properties
from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.deploy.attempt import check_packages, place_of
from grete.deploy.deployment import Deployment, deployed_name, prepare
from grete.deploy.kubernetes import Kubernetes
from grete.deploy.manifests import manifests, shipped_config
from grete.deploy.resource_manager import find_resource_manager
from grete.deploy.yarn import Yarn, yarn_plan
from grete.errors import ConfigError, JobError, PackageError
from grete.model.ids import JobId
from grete.packages.build import build_api
from grete.packages.manifest import PackageKind, encode

Make = Callable[..., Deployment]
SITE = """<configuration>
<property><name>yarn.resourcemanager.ha.rm-ids</name><value>rm1,rm2</value></property>
<property><name>yarn.resourcemanager.hostname.rm1</name><value>one</value></property>
<property><name>yarn.resourcemanager.webapp.address.rm2</name><value>two:9088</value></property>
</configuration>
"""


@pytest.fixture
def hadoop(tmp_path: Path) -> Path:
    folder = tmp_path / "hadoop"
    folder.mkdir()
    (folder / "yarn-site.xml").write_text(SITE)
    return folder


@pytest.fixture
def make(hadoop: Path, tmp_path: Path) -> Make:
    (tmp_path / "application").mkdir()

    def prepared(settings: Mapping[str, str] | None = None, **options: Any) -> Deployment:
        config = {
            "job.name": "counting",
            "job.application.path": str(tmp_path / "application"),
            "task.class": "counting:Counting",
            "task.inputs": "kafka.in",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": "kafka:9092",
            "spark.master": "yarn",
            "job.deploy.yarn.conf.dir": str(hadoop),
            **(settings or {}),
        }
        if "app.class" in config:
            del config["task.class"]
        return prepare(RunOptions(config=config, **options), tmp_path)

    return prepared


def test_a_jobs_name_for_managers_is_legal_and_no_other_jobs() -> None:
    names = [deployed_name(JobId(name)) for name in ("a.b", "a-b", "A.b", "x" * 300, "Ünïcode")]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 52 and name.strip("-") == name and name.isascii() for name in names)


def test_what_a_deployment_cannot_run_is_refused_at_once_with_the_way_out(make: Make) -> None:
    with pytest.raises(ConfigError) as refused:
        make(
            {
                "systems.files.samza.factory": "local",
                "job.coordinator.system": "kafka",
            }
        )
    assert "system 'files' is files of one machine" in str(refused.value)


def test_resources_that_samza_asks_for_are_sparks_unless_spark_has_its_own(make: Make) -> None:
    plan = yarn_plan(
        make(
            {
                "yarn.container.memory.mb": "3072",
                "cluster-manager.container.cpu.cores": "4",
                "yarn.am.container.memory.mb": "2048",
                "yarn.am.container.cpu.cores": "2",
                "yarn.am.java.home": "/opt/java-17",
                "yarn.job.staging.directory": "hdfs:///staging",
                "yarn.queue": "flights",
                "yarn.container.label": "fast",
                "yarn.am.container.label": "safe",
                "yarn.am.opts": "-XX:+UseSerialGC",
                "yarn.kerberos.principal": "ann@EXAMPLE",
                "yarn.kerberos.keytab": "/keys/ann",
                "yarn.job.view.acl": "ann,bob",
                "yarn.job.modify.acl": "ann",
                "spark.driver.memory": "4g",
            }
        )
    )
    expected = {
        "spark.executor.memory": "3072m",
        "spark.executor.cores": "4",
        "spark.driver.memory": "4g",
        "spark.driver.cores": "2",
        "spark.yarn.appMasterEnv.JAVA_HOME": "/opt/java-17",
        "spark.yarn.stagingDir": "hdfs:///staging",
        "spark.yarn.queue": "flights",
        "spark.yarn.executor.nodeLabelExpression": "fast",
        "spark.yarn.am.nodeLabelExpression": "safe",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.kerberos.principal": "ann@EXAMPLE",
        "spark.kerberos.keytab": "/keys/ann",
        "spark.ui.view.acls": "ann,bob",
        "spark.modify.acls": "ann",
    }
    assert {key: plan.properties[key] for key in expected} == expected


def test_requests_for_resources_are_not_made_of_a_local_master() -> None:
    assert Settings.of({"cluster-manager.container.memory.mb": "3072"}).spark.options == {}


def test_the_command_names_files_archives_and_tags_and_no_secret(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "wonderland-4f1c")
    settings = {
        "systems.kafka.consumer.sasl.password": "${env:PASSWORD}",
        "job.deploy.environment.path": "hdfs:///environments/flights.tgz",
        "spark.yarn.tags": "flights",
    }
    deployment = make(settings, until_drained=True)
    plan = yarn_plan(deployment)
    assert deployment.secrets == ("PASSWORD",)
    assert "hdfs:///environments/flights.tgz#environment" in " ".join(plan.command)
    assert "#__package" in " ".join(plan.command)
    assert plan.command[-1] == "--until-drained"
    assert plan.properties["spark.yarn.tags"] == f"{deployment.name},deployment-{deployment.id},flights"
    assert plan.properties["spark.pyspark.python"] == "./environment/bin/python"
    assert plan.config["job.launcher"] == "thread"
    assert "wonderland" not in Yarn().plan(deployment).text
    monkeypatch.delenv("PASSWORD")
    with pytest.raises(ConfigError, match="PASSWORD"):
        deployment.secret_values(os.environ)


SIZED_PIPELINE = {
    "app.class": "flights:Flights",
    "task.class": "",
    "job.autosizing.enabled": "true",
    "job.autosizing.policy": "lag",
    "job.autosizing.executor.most": "4",
}


@pytest.mark.parametrize(
    "asked",
    [
        {"job.container.count": "4"},
        {"job.launcher": "yarn"},
        {"job.autosizing.enabled": "true", "job.autosizing.policy": "lag"},
    ],
)
def test_several_containers_on_yarn_are_applications_that_the_coordinators_submits(
    make: Make, asked: dict[str, str]
) -> None:
    """It is small, as its Spark rests, and has its containers' settings in a file."""
    own = {"spark.driver.memory": "3g", "spark.executor.instances": "2", "spark.yarn.am.memory": "2g"}
    deployment = make({**asked, **own})
    plan = yarn_plan(deployment)
    assert plan.config["job.launcher"] == "yarn"
    assert "container-application.json" in " ".join(plan.command)
    chosen = ("spark.driver.memory", "spark.executor.instances")
    assert [plan.properties[key] for key in chosen] == ["512m", "1"]
    assert plan.properties["spark.driver.memoryOverhead"] == "2g"
    assert plan.containers is not None
    assert [plan.containers.properties[key] for key in chosen] == ["3g", "2"]
    assert plan.containers.archives == plan.archives
    assert (plan.containers.job, plan.containers.deployment) == (deployment.name, deployment.id)
    assert "spark.driver.memory=3g" in Yarn().plan(deployment).text


@pytest.mark.parametrize("asked", [{}, SIZED_PIPELINE])
def test_one_container_on_yarn_is_in_its_coordinators_application(make: Make, asked: dict[str, str]) -> None:
    """Also that of a pipeline of which the coordinator decides the executors."""
    plan = yarn_plan(make(asked))
    assert (plan.config["job.launcher"], plan.containers) == ("thread", None)


def test_the_resource_managers_are_those_of_hadoops_configuration_and_each_is_asked(
    make: Make, hadoop: Path
) -> None:
    settings = Settings.of({"job.deploy.yarn.conf.dir": str(hadoop)}).deploy
    assert find_resource_manager(settings)._addresses == ["http://one:8088", "http://two:9088"]
    named = Settings.of({"job.deploy.yarn.address": "http://127.0.0.1:9, http://127.0.0.1:10"}).deploy
    with pytest.raises(JobError, match=r"127.0.0.1:9/.*127.0.0.1:10/.*and that it runs"):
        find_resource_manager(named).find("tag")


def test_an_attempt_takes_its_place_from_where_it_runs(tmp_path: Path) -> None:
    (tmp_path / "__package").mkdir()
    assert place_of(Manager.YARN, {"NM_HOST": "node-7"}, tmp_path) == {
        "job.application.path": str(tmp_path / "__package"),
        "spark.driver.bindAddress": "node-7",
        "spark.driver.host": "node-7",
    }


def application_package(folder: Path) -> Path:
    """As `grete package build application` leaves it, without an interpreter."""
    made = build_api(folder)
    (folder / "__package").mkdir()
    document = encode(replace(made.manifest, kind=PackageKind.APPLICATION))
    (folder / "__package" / "manifest.json").write_bytes(document)
    return folder / "__package"


def test_the_applications_package_is_sent_and_is_its_environment_where_an_attempt_runs(
    make: Make, tmp_path: Path
) -> None:
    package = application_package(tmp_path / "packages")
    isolated = {
        "job.split.deployment.enabled": "true",
        "job.application.environment": str(package),
        "task.class": "counting:Counting",
    }
    with pytest.raises(ConfigError, match=r"job.application.path: the modules are those of the package"):
        make(isolated)
    plan = yarn_plan(make({**isolated, "job.application.path": ""}))
    assert list(plan.archives) == ["__package"]
    assert place_of(Manager.YARN, {}, package.parent) == {"job.application.environment": str(package)}


def test_the_frameworks_package_is_the_interpreter_of_all_processes(make: Make) -> None:
    path = "hdfs:///packages/grete-framework-1.tgz"
    plan = yarn_plan(make({"yarn.resources.__samzaFrameworkInfrastructure.path": path}))
    assert f"{path}#__samzaFrameworkInfrastructure" in " ".join(plan.command)
    assert plan.properties["spark.pyspark.python"] == "./__samzaFrameworkInfrastructure/bin/python"


def test_resources_have_the_name_and_type_that_samza_gives_them_and_are_files_unless_they_say_so(
    make: Make,
) -> None:
    resources = {
        "rules.path": "hdfs:///flights/rules-7.json",
        "rules.local.name": "rules.json",
        "rules.local.visibility": "PUBLIC",
        "models.path": "hdfs:///flights/models-3.tgz",
        "models.local.type": "archive",
        "__samzaFrameworkApi.path": "hdfs:///packages/grete-api-1.tgz",
    }
    plan = yarn_plan(make({f"yarn.resources.{name}": value for name, value in resources.items()}))
    words = " ".join(plan.command)
    assert plan.files == {"rules.json": "hdfs:///flights/rules-7.json"}
    assert ",hdfs:///flights/rules-7.json#rules.json --archives" in words
    assert list(plan.archives) == ["__package", "__samzaFrameworkApi", "models"]
    with pytest.raises(ConfigError, match=r"yarn.resources.rules.local.type.*none of FILE, ARCHIVE"):
        make({"yarn.resources.rules.path": "hdfs:///rules", "yarn.resources.rules.local.type": "PATTERN"})


def test_what_yarn_alone_brings_is_refused_on_kubernetes_with_the_image_as_the_way_out(make: Make) -> None:
    brought = {
        "job.deploy.environment.path": "hdfs:///environments/flights.tgz",
        "yarn.package.path": "hdfs:///flights.tgz",
        "yarn.resources.rules.path": "hdfs:///rules.json",
    }
    with pytest.raises(ConfigError) as refused:
        make(
            {
                **brought,
                "spark.master": "k8s://https://server",
                "spark.kubernetes.container.image": "flights:7",
            }
        )
    for key in brought:
        assert f"{key}: spark.master=k8s://https://server: YARN alone brings it" in str(refused.value)
    assert "put it into the image that spark.kubernetes.container.image names" in str(refused.value)


ON_KUBERNETES = {"spark.master": "k8s://https://server", "spark.kubernetes.container.image": "flights:7"}


def planned(deployment: Deployment) -> tuple[str, dict[str, Any]]:
    """The plan's text, and the manifests in it by their kind."""
    text = Kubernetes().plan(deployment).text
    return text, {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("user", [None, {}, {"username": "ann"}, {"exec": {"command": "no-such-program"}}])
def test_a_plan_for_kubernetes_needs_no_credentials_and_no_server(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any] | None
) -> None:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    if user is not None:
        context = {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}
        path.write_text(yaml.safe_dump({"current-context": "here", "contexts": [context], "users": [user]}))
    text, made = planned(make(ON_KUBERNETES))
    assert made["StatefulSet"]["metadata"]["namespace"] == ("default" if user is None else "jobs")
    assert text.startswith("# namespace default: ") is (user is None)
    _, named = planned(make({**ON_KUBERNETES, "spark.kubernetes.namespace": "own"}))
    assert {each["metadata"]["namespace"] for each in named.values()} == {"own"}


def test_a_plan_for_kubernetes_shows_what_its_secret_holds_and_masks_what_is_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is not set where only a plan is made."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    settings = {
        **ON_KUBERNETES,
        "systems.kafka.consumer.sasl.password": "${env:PASSWORD}",
        "shop.token": "wonderland-4f1c",
    }
    deployment = make(settings)
    text, made = planned(deployment)
    secret = made["Secret"]
    assert "wonderland" not in text
    assert (secret["immutable"], secret["type"]) == (True, "Opaque")
    assert secret["metadata"]["name"] == f"{deployment.name}-{deployment.id}"
    shown = dict(secret["stringData"])
    config = parse_properties(shown.pop("job.properties"), origin="the plan")
    assert shown == {"PASSWORD": "********"}
    assert config["shop.token"] == "********"
    assert config["systems.kafka.consumer.sasl.password"] == "${env:PASSWORD}"
    assert set(config) == set(shipped_config(deployment, "default"))
    [*_, sent, _] = manifests(deployment, "default", {"PASSWORD": "x"})
    assert set(sent["data"]) == set(secret["stringData"])
    assert {**sent, "data": 0} == {**{k: v for k, v in secret.items() if k != "stringData"}, "data": 0}


def test_packages_of_another_version_than_runs_end_an_attempt_before_it_begins(tmp_path: Path) -> None:
    made = build_api(tmp_path)
    check_packages(tmp_path)
    (made.folder / "manifest.json").write_bytes(encode(replace(made.manifest, grete="0.0.1")))
    with pytest.raises(PackageError, match=r"__samzaFrameworkApi was built by grete 0\.0\.1, and grete "):
        check_packages(tmp_path)


def test_a_file_of_this_machine_that_the_configuration_refers_to_is_refused_with_the_way_out(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("wonderland")
    with pytest.raises(ConfigError, match=r"sasl.password: .*password.* write \$\{env:NAME\}"):
        make({"systems.kafka.consumer.sasl.password": f"${{file:{tmp_path}/password}}"})
    make({"systems.kafka.consumer.sasl.password": "${file:/of/the/nodes/alone}"})


def test_a_standalone_master_runs_the_coordinator_here_and_the_plan_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    config = tmp_path / "job.properties"
    config.write_text(
        "job.name=counting\ntask.class=a:B\ntask.inputs=kafka.in\nspark.master=spark://host:7077\n"
        "systems.kafka.samza.factory=kafka\nsystems.kafka.producer.bootstrap.servers=broker:9092\n"
    )
    assert main(["deploy", "plan", "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert "client mode: coordinator and container run here" in said
    assert f"grete run --config {config}" in said
    assert main(["deploy", "status", "--config", str(config)]) == 2
    assert "use grete status" in capsys.readouterr().err
