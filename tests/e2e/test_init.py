"""A project that `grete init` wrote does what its README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
HOT = [("boiler", "96.0"), ("boiler", "99.1"), ("pump", "93.2")]


def readme_output(folder: Path) -> str:
    """What its commands print, in their order; but for the first, which installs what this environment has."""
    [block] = re.findall(r"```bash\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    install, _, script = block.partition("\n")
    assert install == "pip install -e '.[test]'"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GRETE_HOME": f"{folder}-home",
        },
        capture_output=True,
        text=True,
        timeout=patient(280),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    return done.stdout


@pytest.mark.nightly  # half a minute; the pipeline of README is of every run
def test_the_readme_of_a_new_pipeline_works_as_written(tmp_path: Path) -> None:
    folder = tmp_path / "rooms"
    assert main(["init", str(folder), "--kind", "pipeline", "--system", "local"]) == 0
    said = readme_output(folder)
    assert sorted(re.findall(r'"key":"(\w+)","value":{"celsius":([\d.]+)}', said)) == HOT, said


@pytest.mark.nightly  # 18 s; the tutorial has a task on Kafka
def test_the_readme_of_a_new_task_on_kafka_works_as_written_with_one_broker(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "kafka-rooms"
    assert main(["init", str(folder), "--kind", "task", "--system", "kafka"]) == 0
    properties = folder / "kafka-rooms.properties"
    properties.write_text(properties.read_text().replace("localhost:9092", kafka.bootstrap))
    said = readme_output(folder)
    assert sorted(re.findall(r'"key":"(\w+)","value":{"celsius":([\d.]+),"count"', said)) == HOT, said
