"""What an attempt of a deployment is told by its environment, before it can read a configuration."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deploy.test_deploy import Make, application_package, hadoop, make

from grete.config.rules.validate import validate
from grete.deploy import application_master
from grete.deploy.application_master import framework_first
from grete.deploy.manifests import manifests
from grete.deploy.yarn import yarn_plan
from grete.errors import ConfigError

__all__ = ["hadoop", "make"]
SWITCH, LIBRARY = "ENV_SPLIT_DEPLOYMENT_ENABLED", "APPLICATION_LIB_DIR"
ISOLATED = {"job.split.deployment.enabled": "true"}


def started(folder: Path, **environment: str) -> str:
    """What the ApplicationMaster's program says where modules of the application lie beside it and on its path."""
    program = folder / "application_master.py"
    shutil.copyfile(application_master.__file__, program)
    for name in ("argparse", "json", "logging", "__future__"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of the application')")
    (path := folder / "path").mkdir()
    for name in ("orjson", "grete"):
        (path / f"{name}.py").write_text(f"raise SystemExit('{name} of the application')")
    done = subprocess.run(
        [sys.executable, str(program), "--help"],
        cwd=folder,
        env={"PYTHONPATH": str(path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("switch", [SWITCH, "CLUSTER_BASED_JOB_COORDINATOR_DEPENDENCY_ISOLATION_ENABLED"])
def test_an_isolated_attempt_imports_nothing_from_where_the_application_was_brought(
    tmp_path: Path, switch: str
) -> None:
    assert "usage: python -m grete.deploy.attempt" in started(tmp_path, **{switch: "true"})


def test_without_the_switch_there_is_one_environment_for_all(tmp_path: Path) -> None:
    assert "of the application" in started(tmp_path, **{SWITCH: "false"})


def test_what_spark_and_the_operator_name_and_the_frameworks_package_stay_where_they_are() -> None:
    own = "/nowhere/work"
    path = [
        own,
        f"{own}/pyspark.zip",
        f"{own}/py4j-0.10.9.9-src.zip",
        f"{own}/theirs.zip",
        "/opt/grete",
        sys.prefix,
    ]
    assert framework_first(path, own) == [*path[1:3], *path[4:], *path[:1], path[3]]
    above = str(Path(sys.prefix).parent)
    assert framework_first([above, f"{sys.prefix}/lib"], above) == [f"{sys.prefix}/lib", above]


def test_yarns_attempt_is_told_of_the_switch_and_of_the_applications_folder(
    make: Make, tmp_path: Path
) -> None:
    """Before it can read the configuration; what the configuration says itself wins."""

    def told(settings: dict[str, str]) -> list[str | None]:
        properties = yarn_plan(make(settings)).properties
        return [properties.get(f"spark.yarn.appMasterEnv.{name}") for name in (SWITCH, LIBRARY)]

    package = str(application_package(tmp_path / "packages"))
    assert told({}) == ["false", "./__package"]
    assert told(ISOLATED) == ["true", "./__package"]
    in_package = ISOLATED | {"job.application.environment": package, "job.application.path": ""}
    assert told(in_package) == ["true", "./__package/lib"]
    assert told(ISOLATED | {f"spark.yarn.appMasterEnv.{LIBRARY}": "./own"}) == ["true", "./own"]


def test_yarns_jvm_is_told_by_which_program_functions_of_an_isolated_pipeline_are_evaluated(
    make: Make,
) -> None:
    """What starts in its working folder without one is the framework's, as for StreamTasks."""

    def told(settings: dict[str, str]) -> list[str | None]:
        properties = yarn_plan(make(settings)).properties
        return [
            properties.get(key) for key in ("spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.pyspark.python")
        ]

    assert told(ISOLATED) == [None, sys.executable]
    assert told(ISOLATED | {"app.class": "flights:Delays"}) == ["./grete-application-python", sys.executable]


def test_a_pod_is_told_the_same_and_isolated_finds_no_module_where_it_begins(make: Make) -> None:
    def container(settings: dict[str, str]) -> dict[str, Any]:
        image = {"spark.master": "k8s://https://kubernetes", "spark.kubernetes.container.image": "flights:1"}
        [*_, made] = manifests(make({**image, **settings}), "default", {})
        found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
        return found

    isolated, other = container(ISOLATED), container({})
    assert isolated["command"][:3] == ["python3", "-P", "-m"]
    assert other["command"][:2] == ["python3", "-m"]
    variables = {each["name"]: each.get("value") for each in isolated["env"]}
    assert variables[SWITCH] == "true"
    assert str(variables[LIBRARY]).endswith("/application")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"spark.submit.pyFiles": "/opt/own.zip"},
            r"spark\.submit\.pyFiles with job\.split.*application\.path",
        ),
        ({"job.application.environment": "/opt/own.tar.gz"}, "is an archive.*unpack it.*grete package build"),
        ({"job.application.environment": "/opt/own.pex"}, "is an archive.*unpack it.*grete package build"),
    ],
)
def test_what_would_not_be_isolated_is_refused_with_the_way_out(settings: dict[str, str], said: str) -> None:
    config = {"job.name": "a", "task.class": "my:Task", "task.inputs": "local.in"}
    with pytest.raises(ConfigError, match=said):
        validate(config | ISOLATED | settings)
    validate(config | settings)
