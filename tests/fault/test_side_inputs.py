"""A store that a topic fills has each of its records once, whatever is killed and lost."""

from __future__ import annotations

import contextlib
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import KEYS, Job, job_on

from grete.checkpoint.lag import SspLag
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import JobNotFound
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]
APPLICATION = """
import grete

class Counts(grete.SideInputsProcessor):
    def process(self, envelope, store):
        return [(envelope.key, (store.get(envelope.key) or 0) + 1)]

class Application(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        collector.send("kafka.NAME-out", {"count": self.counts.get(envelope.key)}, key=envelope.key)
"""
SETTINGS = {
    "task.inputs": "kafka.NAME-asks",
    "stores.counts.factory": "grete.store.sqlite",
    "stores.counts.changelog.replication.factor": "1",
    "stores.counts.side.inputs": "kafka.NAME-in",
    "stores.counts.side.inputs.processor.factory": "application:Counts",
    "job.standbytasks.replication.factor": "2",
}


def filled(job: Job) -> int:
    """How many records of the side input are in checkpoints."""
    rows: tuple[SspLag, ...] = ()
    with contextlib.suppress(JobNotFound), open_job(job.id) as handle:
        rows = handle.lag().rows
    return sum(int(row.checkpointed or -1) + 1 for row in rows if row.ssp.stream == job.input)


@pytest.mark.parametrize("is_isolated", ["false", pytest.param("true", marks=pytest.mark.nightly)])
def test_each_record_counts_once_through_killed_containers_and_lost_stores(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_isolated: str
) -> None:
    settings = {**SETTINGS, "job.split.deployment.enabled": is_isolated}
    with job_on(kafka, tmp_path, monkeypatch, application=APPLICATION, settings=settings) as job:
        asks = f"{job.id.name}-asks"
        with closing(open_system(Settings.of(job.settings), "kafka", Path(), SystemClock())) as system:
            system.create_stream(StreamSpec(asks, 2))
        job.submit()
        job.send(400)
        for read in (40, 250):
            eventually(
                lambda least=read: filled(job) >= least, "the store is being filled", context=job.log_ends
            )
            for pid in job.container_pids():
                with contextlib.suppress(ProcessLookupError):  # the one before, whose successor begins
                    os.kill(pid, signal.SIGKILL)
        job.send(200)
        eventually(lambda: filled(job) >= 500, "the store is being filled", context=job.log_ends)
        job.kill()
        job.lose_stores()
        job.send(100)
        job.ask(asks)
        job.run_again()
        eventually(lambda: job.count() == KEYS, "each key is told", context=job.log_ends)
        job.stop()
        assert {one.value["count"] for one in job.written()} == {700 // KEYS}
