"""The compose file: Compose reads it, Kafka's own broker starts as it says, and a job of `grete init` runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from grete.testing.kafka_broker import KafkaCluster, KafkaNode

FILE = Path(__file__).parents[2] / "packaging/compose/compose.yml"

pytestmark = [pytest.mark.nightly, pytest.mark.spark]  # Compose is fetched for it


def as_compose_reads_it(**environment: str) -> subprocess.CompletedProcess[str]:
    command = ["docker-compose", "-f", str(FILE), "config"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


class AsComposed(KafkaCluster):
    """One broker with the settings of the file, but for where it listens and keeps its data."""

    environment: dict[str, Any]

    def _properties(self, node: KafkaNode) -> dict[str, str]:
        said = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
            for name, value in self.environment.items()
        }
        ports = {":9092": f":{node.direct_port}", ":9093": f":{node.controller_port}"}
        for name in ("listeners", "advertised.listeners", "controller.quorum.voters"):
            for inside, here in ports.items():
                said[name] = said[name].replace(f"kafka{inside}", f"127.0.0.1{here}").replace(inside, here)
        return {**said, "log.dirs": str(node.directory / "log")}


def test_a_job_of_init_runs_on_the_broker_and_by_the_command_of_the_file(tmp_path: Path) -> None:
    read = as_compose_reads_it(JOB="alarms")
    assert read.returncode == 0, read.stderr
    services = yaml.safe_load(read.stdout)["services"]
    assert services["job"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    broker = AsComposed(tmp_path / "kafka")
    broker.environment = services["kafka"]["environment"]
    broker.start()

    def grete(*words: str) -> str:
        there = (word.replace("/opt/job", str(tmp_path / "alarms")) for word in words)
        done = subprocess.run(
            [Path(sys.executable).with_name("grete"), *there],
            env={**os.environ, "GRETE_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        grete("init", str(tmp_path / "alarms"), "--kind", "task", "--system", "kafka")
        properties = tmp_path / "alarms/alarms.properties"
        properties.write_text(properties.read_text().replace("localhost:9092", broker.bootstrap))
        configuration = ("--config", "/opt/job/alarms.properties")
        grete("stream", "create", "kafka.readings", "--partitions", "2", "--dev", *configuration)
        records = ("--from-file", "/opt/job/readings.jsonl", "--lines")
        grete("stream", "append", "kafka.readings", *records, *configuration)
        program, *words = services["job"]["command"]
        assert program == "grete"
        grete(*words, "--until-drained")
        alarms = grete("stream", "dump", "--stream", "kafka.alarms", *configuration).splitlines()
        hot = [
            reading
            for line in (tmp_path / "alarms/readings.jsonl").read_text().splitlines()
            if (reading := json.loads(line))["celsius"] > 90
        ]
        assert len(alarms) == len(hot) > 0
    finally:
        broker.stop()


def test_without_a_job_the_file_says_what_is_missing() -> None:
    read = as_compose_reads_it()
    assert read.returncode != 0
    assert "name the job" in read.stderr
