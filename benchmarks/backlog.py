"""A counter with a store, embedded or on a broker of its own, whose input is there before it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from benchmarks.contestants import make_topic, send
from grete.clock import SystemClock
from grete.errors import JobNotFound, LogNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.testing.kafka_broker import KafkaCluster

JOB = JobId("counter")
_APPLICATION = """
import grete

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        sum(range(WORK))
        self.counts.put(envelope.key, (self.counts.get(envelope.key) or 0) + 1)
"""
_PROPERTIES = """
job.name=counter
job.application.path=.
task.class=application:Application
task.inputs={system}.in
stores.counts.factory=grete.store.sqlite
systems.{system}.samza.key.serde=string
systems.{system}.samza.msg.serde=bytes
systems.{system}.samza.offset.default=oldest
"""
_ON_KAFKA = """
stores.counts.changelog=kafka.counts
stores.counts.changelog.replication.factor=1
systems.kafka.samza.factory=kafka
systems.kafka.default.stream.replication.factor=1
task.checkpoint.replication.factor=1
job.coordinator.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
"""
_AT_ONCE = 200_000


@contextmanager
def backlog_job(
    records: int, keys: int, partitions: int, properties: str, work: int = 0, *, on_kafka: bool = False
) -> Iterator[None]:
    """Runs it, in a home of its own; `work` numbers are added up for each record."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["GRETE_HOME"] = str(folder / "home")
        (folder / "application.py").write_text(_APPLICATION.replace("WORK", str(work)))
        properties += _PROPERTIES.format(system="kafka" if on_kafka else "local")
        if on_kafka:
            broker = KafkaCluster(folder / "broker")
            stack.callback(broker.stop)
            broker.start()
            make_topic(broker.bootstrap, "in", partitions)
            sent = ((b"key-%d" % (n % keys), b"x", n % partitions) for n in range(records))
            send(broker.bootstrap, "in", sent)
            properties += _ON_KAFKA.format(bootstrap=broker.bootstrap)
        else:
            _append(folder / "home" / "local", records, keys, partitions)
        (folder / "job.properties").write_text(properties)
        words = ["run", "--quiet", "--config", str(folder / "job.properties")]
        job = subprocess.Popen([sys.executable, "-m", "grete.cli.main", *words])
        try:
            yield
        finally:
            job.terminate()
            job.wait(60)


def _append(home: Path, records: int, keys: int, partitions: int) -> None:
    with closing(LocalSystem(home, SystemClock())) as local:
        local.ensure_stream(StreamSpec("in", partitions))
        for first in range(0, records, _AT_ONCE):
            numbers = range(first, first + _AT_ONCE)
            sent = (Message(b"key-%d" % (n % keys), b"x", 1, partition=n % partitions) for n in numbers)
            local.append("in", sent)


def passed() -> list[int]:
    """The next offset of each task in each partition; nothing before there is one."""
    with suppress(LogNotFound, JobNotFound), open_job(JOB) as handle:
        return [int(o) + 1 for c in handle.checkpoints.read().values() for o in c.offsets.values()]
    return []


def wait_until_passed(offsets: int) -> None:
    """Until the offsets of all tasks are so many together."""
    while sum(passed()) < offsets:
        time.sleep(0.5)
