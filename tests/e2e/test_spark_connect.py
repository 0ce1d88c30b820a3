"""A program with a session of a real Spark Connect server, whose environment has the client alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.support.client_environment import environment_of_a_client

import grete
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.nightly, pytest.mark.spark]  # unit/spark/test_spark_versions.py has the refusals
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PROGRAM = """
import sys
from pyspark.sql import SparkSession
import grete

class Words(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        pass

class Rows(grete.DataFramePipeline):
    def build(self, inputs):
        return inputs

if __name__ == "__main__":
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    for application in (Words, Rows):
        try:
            with grete.StreamProcessor({"job.name": "words", "task.inputs": "local.in"}, application) as processor:
                processor.wait()
        except grete.errors.ConfigError as error:
            print(error)
    print(spark.range(41).count(), "rows from the server")
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    binding = {"port": str(port), "address": "127.0.0.1"}
    options = [
        word
        for name, value in binding.items()
        for word in ("--conf", f"spark.connect.grpc.binding.{name}={value}")
    ]
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    command = [submit, "--master", "local[1]", *options, "--class", _SERVER, "spark-internal"]
    log = tmp_path / "server.log"
    with log.open("wb") as said, subprocess.Popen(command, cwd=tmp_path, stderr=said, stdout=said) as running:
        eventually(lambda: "Spark Connect server started" in log.read_text(), "it listens", within_s=60)
        yield f"sc://127.0.0.1:{port}"
        running.terminate()


def test_a_program_with_its_session_is_refused_by_name_and_keeps_the_session(
    server: str, tmp_path: Path
) -> None:
    environment = environment_of_a_client(tmp_path / "client")
    [packages] = environment.glob("lib/python*/site-packages")
    ours = (Path(grete.__file__).parents[1], next(Path(sys.prefix).glob("lib/python*/site-packages")))
    (packages / "below.pth").write_text("".join(f"{path}\n" for path in ours))  # after the client's own
    home, program = tmp_path / "home", tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [environment / "bin/python", program, server],
        cwd=tmp_path,
        env={**os.environ, "GRETE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == 0, done.stderr
    task, pipeline, rows = done.stdout.splitlines()
    assert "asks for Spark Connect" in task
    assert pipeline == task
    assert rows == "41 rows from the server"
    assert not home.exists()
