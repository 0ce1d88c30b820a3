"""What the image runs: a command as it stands, and Spark's executors from the environment that Spark gives them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).parents[3] / "packaging" / "image" / "entrypoint.sh"
GIVEN = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_CONF_DIR": "/opt/conf",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "words-exec-3",
    **{f"SPARK_JAVA_OPT_{number}": f"-Done={number} and spaces" for number in (10, *range(10))},
}


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A path on which Java, and the process that tends the others, say how they were called."""
    for name, script in {"java": 'printf "%s\\n" "$@"', "tini": 'shift 3; exec "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    return f"{tmp_path}:/usr/bin:/bin"


def said(*words: str, path: str, **environment: str) -> list[str]:
    done = subprocess.run(
        ["bash", ENTRYPOINT, *words], env={"PATH": path, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_executor_is_what_spark_says_in_its_environment(programs: str) -> None:
    words = said("executor", path=programs, **GIVEN)
    assert words[:11] == [f"-Done={number} and spaces" for number in range(11)]
    assert words[11:16] == [
        *("-Xms1g", "-Xmx1g", "-cp", "/opt/conf:/opt/spark/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ]
    assert dict(zip(words[16::2], words[17::2], strict=True)) == {
        "--driver-url": GIVEN["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "words-exec-3",
    }


def test_any_other_command_is_run_as_it_stands(programs: str) -> None:
    assert said("printf", "%s\\n", "a b", "$HOME", path=programs) == ["a b", "$HOME"]


def test_an_executor_of_which_spark_says_too_little_names_what_is_missing(programs: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != "SPARK_EXECUTOR_MEMORY"}
    done = subprocess.run(
        ["bash", ENTRYPOINT, "executor"], env={"PATH": programs, **given}, capture_output=True
    )
    assert done.returncode != 0
    assert b"SPARK_EXECUTOR_MEMORY: unbound" in done.stderr
