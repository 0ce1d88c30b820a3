"""The interpreter of Spark's workers on a local master: the driver's own, without the archives of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from grete.config.settings import Settings
from grete.spark.session.settings import context_settings, session_settings
from grete.spark.session.worker_python import worker_python

PROGRAM = worker_python("local[2]", {})["PYSPARK_PYTHON"]
DAEMON = "spark.python.daemon.module"


def test_it_is_the_drivers_interpreter_without_the_archives_of_spark() -> None:
    home = str(Path(pyspark.__file__).parent)
    archives = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-src.zip", f"{home}/jars/a.jar"]
    own = ["/a folder/of mine", "/theirs/lib.zip"]
    environment = {
        **os.environ,
        **worker_python("local", {}),
        "SPARK_HOME": home,
        "PYTHONPATH": ":".join([*archives, own[0], *archives, own[1]]),
    }
    program = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:], sep='\\n')"
    command = [PROGRAM, "-c", program, "an argument", "*"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.splitlines() == [sys.executable, ":".join(own), "an argument", "*"]


@pytest.mark.parametrize(
    ("master", "environment", "named"),
    [
        ("local[*]", {"PYSPARK_PYTHON": sys.executable}, PROGRAM),
        ("local[2]", {"PYSPARK_PYTHON": "/another/python"}, "/another/python"),
        ("spark://host:7077", worker_python("local[2]", {}), sys.executable),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, sys.executable),
        ("spark://host:7077", {}, sys.executable),
        ("local-cluster[2,1,1024]", {}, sys.executable),
        ("yarn", {"PYSPARK_PYTHON": "python3"}, "python3"),
    ],
)
def test_another_interpreter_spark_or_machine_is_left_as_it_is(
    master: str, environment: dict[str, str], named: str
) -> None:
    assert worker_python(master, environment)["PYSPARK_PYTHON"] == named


def test_a_jvm_that_was_there_before_has_no_variable_for_the_program() -> None:
    assert worker_python("local", {}, has_jvm=True) == {"PYSPARK_PYTHON": sys.executable}
    ours = worker_python("local", {})
    assert worker_python("local", ours, has_jvm=True) == ours


def test_workers_of_pipelines_on_this_machine_are_forked_from_a_process_that_has_their_imports() -> None:
    daemon = "grete.spark.worker_daemon"
    assert session_settings("job", Settings.of({"spark.master": "local[2]"}))[DAEMON] == daemon
    assert session_settings("job", Settings.of({"spark.master": "local[2]", DAEMON: "own"}))[DAEMON] == "own"
    assert DAEMON not in session_settings("job", Settings.of({"spark.master": "spark://host:7077"}))
    assert DAEMON not in context_settings("job", Settings.of({"spark.master": "local[2]"}))
