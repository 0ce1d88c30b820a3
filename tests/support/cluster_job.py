"""A job on Kafka whose executors are on a cluster that shows them neither its home nor its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from grete.checkpoint.committed_reader import CommittedReader
from grete.checkpoint.names import checkpoint_log_name
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.testing.waiting import patient
from grete_workbench.spark_cluster import SparkCluster

BROKERS = "GRETE_TEST_BROKERS"


class ClusterJob:
    """Streams of its own on a shared broker; its modules are in `application`."""

    def __init__(self, bootstrap: str, cluster: SparkCluster, folder: Path, *, partitions: int = 2) -> None:
        mark = uuid.uuid4().hex[:8]
        self.name, self.input, self.output = f"cluster-{mark}", f"in-{mark}", f"out-{mark}"
        self.home, self.application = folder / "home", folder / "application"
        self.application.mkdir(parents=True)
        self.home.mkdir()
        self._bootstrap = bootstrap
        self.partitions, self.output_partitions = partitions, min(partitions, 2)
        self.log_level = "INFO"
        self.until_drained = True
        self.config = {
            "job.name": self.name,
            "job.application.path": ".",
            "task.inputs": f"kafka.{self.input}",
            "task.outputs": f"kafka.{self.output}",
            "job.coordinator.system": "kafka",
            "job.coordinator.replication.factor": "1",
            "task.checkpoint.replication.factor": "1",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.samza.key.serde": "string",
            "systems.kafka.samza.msg.serde": "json",
            "systems.kafka.default.stream.replication.factor": "1",
            # executors have neither this variable nor a file of this machine
            "systems.kafka.producer.bootstrap.servers": f"${{env:{BROKERS}}}",
            "spark.master": cluster.bootstrap,
            "spark.executor.memory": "512m",
            "spark.cores.max": str(len(cluster.workers)),
            "spark.driver.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.log.level": "WARN",
        }

    def write(self, name: str, text: str) -> None:
        """A file of the application."""
        (self.application / name).write_text(text)

    def fill(self, records: int, *, keys: int = 10, first: int = 0) -> None:
        """Append records; the keys take turns, and each stays in one partition."""
        with self.system() as system:
            if not first:
                system.create_stream(StreamSpec(self.input, self.partitions))
                system.create_stream(StreamSpec(self.output, self.output_partitions))
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 3}
        )
        for number in range(first, first + records):
            key = number % keys
            producer.produce(self.input, b"{}", b"key%d" % key, key % self.partitions)
            producer.poll(0)
        assert producer.flush(60) == 0

    @contextmanager
    def system(self) -> Iterator[System]:
        """The job's system, as this process opens it."""
        config = {**self.config, "systems.kafka.producer.bootstrap.servers": self._bootstrap}
        with closing(open_system(Settings.of(config), "kafka", self.home, SystemClock())) as opened:
            yield opened

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`grete run`, with `--until-drained` unless it is to go on."""
        path = self.application / "job.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.config.items()))
        drained = ["--until-drained"] if self.until_drained else []
        command = [sys.executable, "-m", "grete.cli.main", "run", *drained, "--quiet"]
        given = {"GRETE_HOME": str(self.home), "GRETE_LOG_LEVEL": self.log_level, BROKERS: self._bootstrap}
        return subprocess.Popen(
            [*command, *words, "--config", str(path)],
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """As `start`, to its end: the exit code, and what it and its container said."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=patient(200))
        return process.returncode, said + self.log()

    def log(self) -> str:
        """The container's log; empty while there is none."""
        return "".join(
            log.read_text(errors="replace") for log in self.home.glob("jobs/*/logs/container-0.log")
        )

    def outputs(self) -> dict[str, list[dict[str, object]]]:
        """What is committed of the output, by key, in order."""
        found: dict[str, list[dict[str, object]]] = {}
        with self.system() as system:
            try:
                partitions = system.partition_count(self.output)
            except StreamNotFound:
                return found
            for partition in range(partitions):
                for _, batch in system.read(self.output, partition, 0):
                    for key, value in zip(
                        batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True
                    ):
                        found.setdefault(key.decode(), []).append(json.loads(value))
        return found

    def committed(self) -> Counter[str]:
        """How many records of the output a reader of committed batches gets, by key; for a job that has ended."""
        found: Counter[str] = Counter()
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": self.name, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(self.output, one, 0) for one in range(self.output_partitions)])
        job, ended = JobId(self.name), 0
        with self.system() as system, closing(consumer):
            reader = CommittedReader(consumer, {job: system.checkpoint_log(checkpoint_log_name(job))})
            while (message := reader.poll(patient(30 if ended < self.output_partitions else 1))) is not None:
                if (error := message.error()) is None:
                    found[(message.key() or b"").decode()] += 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ended += 1
        assert ended >= self.output_partitions, "the output was not read to its end"
        return found
