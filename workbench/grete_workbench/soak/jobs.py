"""The jobs of a soak: what they read is numbered by its place, so what they write can be checked without a list."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import GreteError
from grete.kafka.library import Producer
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.local.system import Message
from grete.testing.waiting import patient
from grete_workbench.soak.arithmetic import CountsInOrder, EachOnce

_log = logging.getLogger("grete.soak")
KEYS, PARTITIONS = 10, 2
_AGAIN_S = 1.0
_PIPELINE = """
import grete

class Passing(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()
        return {"OUTPUT": frame.select("key", "value")}
"""
_ANY = """
cluster-manager.container.retry.count=-1
cluster-manager.container.retry.longest-pause.ms=2000
job.coordinator.lease.ttl.ms=4000
spark.master=local[1]
spark.driver.memory=512m
spark.ui.enabled=false
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
_TASK = """
task.class=grete.testing.counting:CountingTask
job.container.count=2
job.standbytasks.replication.factor=2
stores.counts.factory=grete.store.sqlite
stores.default.changelog.replication.factor=1
systems.{system}.samza.key.serde=string
systems.{system}.samza.msg.serde=json
"""
_KAFKA = """
systems.kafka.samza.factory=kafka
systems.kafka.producer.bootstrap.servers={bootstrap}
systems.kafka.default.stream.replication.factor=1
job.coordinator.replication.factor=1
task.checkpoint.replication.factor=1
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a job is: on which system, and whether it is a pipeline, or its containers have Spark."""

    name: str
    system: str
    is_pipeline: bool = False
    has_spark: bool = False

    @property
    def command(self) -> list[str]:
        """Its coordinator."""
        spark = self.has_spark or self.is_pipeline
        return ["grete.cli.main", "run", "--quiet"] if spark else ["grete.testing.sparkless"]


@dataclass
class SoakJob:
    """A job, the records that it gets, and the process that coordinates it, which is started again when it dies."""

    kind: Kind
    home: Path
    bootstrap: str
    checker: CountsInOrder | EachOnce = field(init=False)
    sent: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    starts: int = 0
    _read: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    _process: subprocess.Popen[bytes] | None = None
    _is_ending: bool = False

    def __post_init__(self) -> None:
        self.checker = EachOnce() if self.kind.is_pipeline else CountsInOrder()
        self.folder = self.home / "applications" / self.kind.name
        self.folder.mkdir(parents=True)
        name, system = self.kind.name, self.kind.system
        text = f"job.name={name}\njob.application.path={self.folder}\n{_ANY}"
        text += f"task.inputs={system}.{name}-in\ntask.outputs={system}.{name}-out\n"
        text += f"systems.{system}.samza.offset.default=oldest\n"
        if system == "kafka":
            text += _KAFKA.format(bootstrap=self.bootstrap)
        if self.kind.is_pipeline:
            (self.folder / "passing.py").write_text(_PIPELINE.replace("OUTPUT", f"{system}.{name}-out"))
            text += (
                "app.class=passing:Passing\ntask.max.records.per.batch=2000\njob.coordinator.system=local\n"
            )
            text += "systems.local.samza.factory=local\n"
        else:
            text += _TASK.format(system=system)
        self._config = self.folder / "job.properties"
        self._config.write_text(text)
        self._log = (self.folder / "coordinator.log").open("ab")
        with self._system() as opened:
            for stream in ("in", "out"):
                opened.ensure_stream(StreamSpec(f"{name}-{stream}", PARTITIONS))

    @property
    def id(self) -> JobId:
        """Its name."""
        return JobId(self.kind.name)

    @contextmanager
    def _system(self) -> Iterator[System]:
        settings = Settings.of(
            {
                "systems.local.samza.factory": "local",
                **dict(line.split("=", 1) for line in _KAFKA.format(bootstrap=self.bootstrap).split()),
            }
        )
        with closing(open_system(settings, self.kind.system, self.home, SystemClock())) as system:
            yield system

    # --- records ---

    def feed(self, records: int) -> None:
        """Append so many to each partition: of key `offset % KEYS`, each with its offset.

        Where the system does not answer nothing is known of what was appended; the next call looks how far it is.
        """
        name = f"{self.kind.name}-in"
        try:
            with self._system() as system:
                ends = system.offsets(name)
                self.sent = [int(ends[partition].upcoming) for partition in range(PARTITIONS)]
                messages = [
                    Message(_key(partition, offset), orjson.dumps({"n": offset}), 1, partition)
                    for partition in range(PARTITIONS)
                    for offset in range(self.sent[partition], self.sent[partition] + records)
                ]
                if self.kind.system == "local":
                    system.append(name, messages)
                else:
                    self._produce(name, messages)
                self.sent = [one + records for one in self.sent]
        except (GreteError, OSError) as error:
            _log.debug("%s gets no records: %s", self.kind.name, error)

    def _produce(self, topic: str, messages: list[Message]) -> None:
        """Without a transaction, whose marker would have an offset of its own."""
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        producer = Producer({**settings, "message.timeout.ms": 5_000})
        for one in messages:
            producer.produce(topic, one.value, one.key, one.partition or 0)
        if producer.flush(10):
            raise OSError(f"{topic}: the brokers do not answer")

    def check(self) -> None:
        """Take in what it has written since."""
        name = f"{self.kind.name}-out"
        try:
            with self._system() as system:
                for partition in range(PARTITIONS):
                    end = int(system.offsets(name)[partition].upcoming)
                    for _, batch in system.read(name, partition, self._read[partition], end):
                        rows = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                        for key, value in rows:
                            self._take(key.decode(), orjson.loads(value))
                    self._read[partition] = end
        except (GreteError, OSError) as error:
            _log.debug("%s is not read: %s", self.kind.name, error)

    def _take(self, key: str, value: int | dict[str, int]) -> None:
        self.checker.take(key, value["n"] // KEYS if isinstance(value, dict) else value)

    def missing(self) -> list[str]:
        """Of what was sent, what has no output yet."""
        expected = {
            _key(partition, key).decode(): len(range(key, sent, KEYS))
            for partition, sent in enumerate(self.sent)
            for key in range(KEYS)
        }
        return list(self.checker.missing(expected))

    # --- processes ---

    def start(self) -> None:
        """Run it until `stop`, whatever becomes of its coordinator."""
        threading.Thread(target=self._supervise, name=self.kind.name, daemon=True).start()

    def _supervise(self) -> None:
        which = ["--config", str(self._config)]
        while not self._is_ending:
            command = [sys.executable, "-m", *self.kind.command, *which]
            environment = {**os.environ, "GRETE_HOME": str(self.home)}
            self.starts += 1
            process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)  # noqa: S603
            self._process = process
            process.wait()
            if not self._is_ending:
                time.sleep(_AGAIN_S)
                which = ["--job", self.kind.name] if self._was_submitted() else which

    def _was_submitted(self) -> bool:
        return (self.home / "jobs" / f"{self.kind.name}-1").exists()

    @property
    def pid(self) -> int | None:
        """Its coordinator's."""
        return None if self._process is None else self._process.pid

    def stop(self) -> int:
        """Let it end at a batch boundary; the exit code of its coordinator."""
        self._is_ending = True
        assert self._process is not None, "it was started"
        self._process.terminate()
        try:
            return self._process.wait(patient(120))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _key(partition: int, offset: int) -> bytes:
    return b"p%d-k%d" % (partition, offset % KEYS)
