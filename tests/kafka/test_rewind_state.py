"""A bad deployment on Kafka is undone from the command line: offsets and stores go back to a batch together."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.model.streams import StreamSpec
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

Output = pytest.CaptureFixture[str]


class Job:
    """A counter, run by its real coordinator in processes of their own."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        mark = uuid.uuid4().hex[:8]
        self.name, self.input, self.output = f"counter-{mark}", f"in-{mark}", f"out-{mark}"
        self._bootstrap, self._home = bootstrap, home
        self._settings = {
            "job.name": self.name,
            "job.coordinator.system": "kafka",
            "job.coordinator.replication.factor": "1",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.samza.key.serde": "string",
            "systems.kafka.samza.msg.serde": "json",
            "task.checkpoint.replication.factor": "1",
            "task.class": "grete.testing.counting:CountingTask",
            "task.inputs": f"kafka.{self.input}",
            "task.outputs": f"kafka.{self.output}",
            "stores.counts.factory": "grete.store.sqlite",
        }
        with closing(open_system(Settings.of(self._settings), "kafka", home, SystemClock())) as system:
            system.create_stream(StreamSpec(self.input, 1))

    def send(self, keys: str) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for key in keys:
            producer.produce(self.input, b"0", key)
        assert producer.flush(30) == 0

    def run(self) -> None:
        properties = self._home / "job.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        command = [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", "--config"]
        done = subprocess.run(
            [*command, str(properties)], capture_output=True, text=True, timeout=patient(120)
        )
        assert done.returncode == 0, done.stderr

    def counts(self) -> list[int]:
        return [json.loads(row["value"]) for row in self._rows()]

    def _rows(self) -> Iterator[dict[str, Any]]:
        with closing(open_system(Settings.of(self._settings), "kafka", self._home, SystemClock())) as system:
            for _, batch in system.read(self.output, 0, 0):
                yield from batch.to_pylist()


@pytest.mark.timeout(180)
def test_offsets_and_stores_go_back_to_a_batch_together(
    kafka: KafkaCluster, home: Path, capsys: Output
) -> None:
    job = Job(kafka.bootstrap, home)
    job.send("aab")
    job.run()
    job.send("ab")
    job.run()
    assert job.counts() == [1, 2, 1, 3, 2]
    assert main(["checkpoint", "history", "--job", job.name, "-o", "json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    target = f"batch:{first['lineage']}/{first['batch_id']}"
    words = ["checkpoint", "rewind", "--to", target, "--state", "restore", "--execute"]
    assert main([*words, "--job", job.name, "-o", "json"]) == 0, capsys.readouterr().err
    (state,) = json.loads(capsys.readouterr().out)["state"].values()
    assert state["choice"] == "restore"
    job.run()
    assert job.counts() == [1, 2, 1, 3, 2, 3, 2]
