"""A StreamTask that reads Kafka and embedded streams: state, outputs and all offsets commit together, on Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter as Tally
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import KEYS, Job, job_on

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]
SETTINGS = {
    "task.inputs": "kafka.NAME-in,local.extra",
    "task.checkpoint.system": "kafka",
    "job.coordinator.system": "kafka",
    "systems.local.samza.factory": "local",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
}


def send_embedded(folder: Path, first: int, count: int) -> None:
    """Records with the keys that those of the topic have, in the partition of the same number."""
    with closing(LocalSystem(folder / "home" / "local", SystemClock())) as system:
        system.ensure_stream(StreamSpec("extra", 2))
        numbers = range(first, first + count)
        keys = [n % KEYS for n in numbers]
        system.append(
            "extra",
            [
                Message(b"k%d" % key, json.dumps({"n": n}).encode(), 0, key % 2)
                for n, key in zip(numbers, keys, strict=True)
            ],
        )


def lag(job: Job) -> dict[str, int | None]:
    with open_job(job.id) as handle:
        return {str(row.ssp.system): row.records for row in handle.lag().rows}


def test_each_record_of_both_counts_once_though_containers_are_killed_and_stores_lost(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch, settings=SETTINGS) as job:
        send_embedded(tmp_path, 0, 300)
        job.send(300)
        job.submit()
        for least in (50, 300):
            eventually(lambda least=least: job.count() >= least, "records of both", context=job.log_ends)
            for pid in job.container_pids():
                with contextlib.suppress(ProcessLookupError):  # the one before, whose successor begins
                    os.kill(pid, signal.SIGKILL)
        send_embedded(tmp_path, 300, 200)
        job.send(100)
        eventually(lambda: job.count() == 900, "all of both", context=job.log_ends)
        eventually(lambda: lag(job) == {"kafka": 0, "local": 0}, "no lag", context=job.log_ends)
        job.kill()
        job.lose_stores()
        send_embedded(tmp_path, 500, 100)
        job.run_again()
        eventually(lambda: job.count() == 1_000, "what came since", context=job.log_ends)
        job.stop()
        counted = Tally((output.key, output.value["count"]) for output in job.written())
        assert counted == {(b"k%d" % key, count): 1 for key in range(KEYS) for count in range(1, 51)}
