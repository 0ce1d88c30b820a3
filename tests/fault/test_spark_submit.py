"""Containers that are applications of their own, submitted to a cluster by Spark's own `spark-submit`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_job import ClusterJob

from grete.launch.processes import children_of
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]
COUNTING = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.out = context.config["test.out"]

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send(self.out, {"count": count}, key=envelope.key)
"""


@pytest.fixture
def job(kafka: KafkaCluster, isolated_cluster: SparkCluster, tmp_path: Path) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path)
    made.write("counting.py", COUNTING)
    made.config |= {
        "task.class": "counting:Counter",
        "test.out": f"kafka.{made.output}",
        "stores.counts.factory": "grete.store.sqlite",
        "stores.counts.key.serde": "string",
        "stores.counts.msg.serde": "json",
        "stores.counts.changelog.replication.factor": "1",
        "job.launcher": "spark_submit",
        "job.container.count": "2",
        "spark.cores.max": "1",
    }
    yield made
    isolated_cluster.ensure_running()


def submitted(job: ClusterJob, container: int) -> list[int]:
    """The JVMs of spark-submit that run a container, by their exit file."""
    mark = f"container-{container}.exit.json".encode()
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            given = (one / "environ").read_bytes()
            is_java = (one / "comm").read_text().strip() == "java"
            if is_java and mark in given and os.fsencode(job.home) in given:
                found.append(int(one.name))
        except OSError:
            continue
    return found


def is_python(process: int) -> bool:
    """A JVM has others beneath it for moments, by which it asks for a file's rights for example."""
    try:
        return "python" in Path(f"/proc/{process}/comm").read_text()
    except OSError:
        return False


def test_containers_are_applications_by_spark_submit_and_one_whose_jvm_is_killed_is_submitted_again(
    job: ClusterJob,
) -> None:
    job.fill(200)
    job.until_drained = False
    process = job.start()
    try:
        eventually(
            lambda: len(job.outputs()) == 10, "outputs of both containers", within_s=120, context=job.log
        )
        [killed] = submitted(job, 0)
        [driver] = filter(is_python, children_of(killed))
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{driver}").exists(), "the end of its driver")
        job.fill(200, first=200)
        eventually(
            lambda: sum(map(len, job.outputs().values())) == 400, "all outputs", within_s=120, context=job.log
        )
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=patient(120))
    finally:
        process.kill()
    assert process.returncode == 0, said + job.log()
    assert {key: [one["count"] for one in found] for key, found in job.outputs().items()} == {
        f"key{number}": list(range(1, 41)) for number in range(10)
    }
