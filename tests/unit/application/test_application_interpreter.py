"""The program among Spark's files that evaluates a pipeline's functions in the application's environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from grete.spark.executors.application_interpreter import ApplicationPlace, program
from grete.spark.session.worker_python import ON_EXECUTORS

DAEMON = """
import importlib.util, json, os, sys

def manager():
    found = [importlib.util.find_spec(name) is not None for name in ("beside", "grete.api", "grete.spark")]
    print(json.dumps([sys.prefix, sys.argv[1:], found, os.environ["PYTHONPATH"]]))
"""


@pytest.fixture
def executor(tmp_path: Path) -> Path:
    """Its working folder, with the application's modules. Beside it is Spark's archive."""
    folder = tmp_path / "executor"
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "beside.py").touch()
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/daemon.py", DAEMON)
    return folder


def run(executor: Path, place: ApplicationPlace) -> subprocess.CompletedProcess[str]:
    """As Spark does it."""
    made = executor / ON_EXECUTORS
    made.write_text(program(sys.executable, place))
    made.chmod(0o755)
    own = [path for path in sys.path if path.endswith("src")]
    path = os.pathsep.join([str(executor.parent / "pyspark.zip"), "/another.jar", *own])
    command = [f"./{ON_EXECUTORS}", "-m", "pyspark.daemon", "pyspark.worker"]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, cwd=executor, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_it_becomes_the_applications_interpreter_with_sparks_modules_its_own_and_the_api(
    executor: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "environment", with_pip=False)
    done = run(executor, ApplicationPlace(str(tmp_path / "environment"), "", None, "modules"))
    assert done.returncode == 0, done.stderr
    prefix, arguments, found, path = json.loads(done.stdout)
    assert prefix == str(tmp_path / "environment")
    assert arguments == ["pyspark.worker"]
    assert found == [True, True, False], "its module, the API, nothing else of the framework"
    assert path == str(tmp_path / "pyspark.zip")


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        (
            ApplicationPlace("/nowhere/environment", "", None, None),
            "there is no /nowhere/environment/bin/python",
        ),
        (
            ApplicationPlace("lost.package", "0" * 64, "environments", None),
            "there is no package ",
        ),
        (ApplicationPlace("modules", "0" * 64, None, None), "modules is not the package of the driver"),
    ],
)
def test_what_is_missing_on_an_executor_is_named_without_a_traceback(
    executor: Path, place: ApplicationPlace, problem: str
) -> None:
    done = run(executor, place)
    assert done.returncode == 1
    assert done.stderr.startswith("the application's functions cannot be evaluated here: ")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
