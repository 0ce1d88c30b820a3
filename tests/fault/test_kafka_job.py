"""A job on Kafka through the real command line and Spark: killed at every point of an executor's commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.failpoints import POINTS
from grete.model.streams import StreamSpec
from grete.systems.factory import open_system
from grete.systems.kafka.system import KafkaSystem
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(300)]

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
RECORDS, KEYS = 3_000, 50
COUNTER = '''
import grete

class Counter(grete.StreamTask):
    """Counts each key; every output says which count it is, so loss and duplication show."""

    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("kafka.counter-out", {"count": count}, key=envelope.key)
'''
PROPERTIES = {
    "job.name": "kafka-counter",
    "job.application.path": ".",
    "task.class": "counter:Counter",
    "task.inputs": "kafka.counter-in",
    "task.outputs": "kafka.counter-out",
    "task.max.records.per.batch": "300",
    "task.commit.groups": "2",
    "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
    "systems.kafka.default.stream.replication.factor": "1",
    "systems.kafka.samza.offset.default": "oldest",
    "systems.kafka.samza.key.serde": "string",
    "systems.kafka.samza.msg.serde": "json",
    "job.coordinator.replication.factor": "1",
    "task.checkpoint.replication.factor": "1",
    "stores.counts.factory": "grete.store.sqlite",
    "cluster-manager.container.retry.count": "-1",
    "cluster-manager.container.retry.longest-pause.ms": "100",
    "spark.master": "local[2,4]",  # a lost Python worker is a failed task, tried four times
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class KafkaJob:
    """The counting job in a home of its own."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self._home = home
        self._properties = {**PROPERTIES, "systems.kafka.producer.bootstrap.servers": bootstrap}
        application = home / "application"
        application.mkdir()
        (application / "counter.py").write_text(COUNTER)
        self._config = application / "counter.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        made = open_system(Settings.of(self._properties), "kafka", home, SystemClock())
        assert isinstance(made, KafkaSystem)
        self.system = made
        self.system.create_stream(StreamSpec("counter-in", 2))
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self.sent = 0

    def fill(self, records: int) -> None:
        for number in range(self.sent, self.sent + records):
            self._producer.produce("counter-in", b"{}", f"key{number % KEYS}", number % 2)
        assert self._producer.flush(30) == 0
        self.sent += records

    def run(self, environment: Mapping[str, str] | None = None, *, spark: bool = True) -> None:
        program = ["grete.cli.main", "run", "--quiet"] if spark else ["grete.testing.sparkless"]
        done = subprocess.run(
            [sys.executable, "-m", *program, "--until-drained", "--config", self._config],
            env={**os.environ, "GRETE_HOME": str(self._home / "home"), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=patient(600),
            check=False,
        )
        logs = self._home / "home" / "jobs" / "kafka-counter-1" / "logs"
        assert done.returncode == 0, done.stderr + (logs / "container-0.log").read_text()[-4_000:]

    def run_through(self, kills: Sequence[tuple[str, int]]) -> None:
        """Run to the end while a process dies at the nth pass of each point, each of them once."""
        died = self._home / "died"
        died.mkdir()
        self.run(
            {
                "GRETE_FAILPOINT": ",".join(f"{point}:kill:{nth}" for point, nth in kills),
                "GRETE_FAILPOINT_ONCE": str(died),
                "GRETE_FAILPOINT_CONTAINER": "0",
            }
        )
        reached = {path.name for path in died.iterdir()}
        missed = [kill for place, kill in enumerate(kills) if f"{place}-{kill[0]}" not in reached]
        assert not missed, f"never reached, so this shows nothing about them: {missed}"

    def assert_exactly_once(self) -> None:
        counts: dict[str, list[int]] = {}
        for partition in range(self.system.partition_count("counter-out")):
            for _, batch in self.system.read("counter-out", partition, 0):
                for record in batch.to_pylist():
                    counts.setdefault(record["key"].decode(), []).append(json.loads(record["value"])["count"])
        expected = range(1, self.sent // KEYS + 1)
        assert counts == {f"key{key}": list(expected) for key in range(KEYS)}


@pytest.mark.nightly  # 20 s; `kafka/test_executor_commit.py` fails at each of these points
def test_killed_around_its_commits_a_job_counts_every_record_once(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Executors at every point of their commits, and the driver between their commits and its own step."""
    job = KafkaJob(kafka.bootstrap, tmp_path)
    job.fill(RECORDS)
    executor = [(name, 1) for name in POINTS if name.startswith("executor.")]
    again = [
        ("executor.flushed", 2),
        ("executor.committed", 2),
        ("store.pending-written", 2),
        ("epoch.noted", 2),
    ]
    driver = [("epoch.reported", 2), ("container.fence-raised", 1)]
    job.run_through([*executor, *(again if NIGHTLY else ()), *driver])
    job.assert_exactly_once()
    job.fill(1_000)
    job.run(spark=False)
    job.assert_exactly_once()
    job.system.close()
