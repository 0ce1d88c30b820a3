"""An executor that its cluster took for dead, and that goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.test_isolated_executors import BESIDE, counting
from tests.support.cluster_job import ClusterJob

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
LOST_S = "4"
"""A worker that says nothing for so long is dead to its master."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Two workers for the executors, and a third one for the successor of one."""
    made = SparkCluster(tmp_path / "cluster", nodes=4, settings={"spark.worker.timeout": LOST_S})
    made.start()
    yield made
    made.stop()


def test_what_an_executor_commits_after_its_successor_has_begun_is_refused(
    kafka: KafkaCluster, cluster: SparkCluster, tmp_path: Path
) -> None:
    job = ClusterJob(kafka.bootstrap, cluster, tmp_path)
    job.write("beside.py", BESIDE)
    job.write("factor.txt", "21")
    job.config["spark.cores.max"] = "2"
    counting(job)
    records = 16_000

    def counted() -> dict[str, int]:
        return {key: len(found) for key, found in job.outputs().items()}

    job.fill(records)
    process = job.start()
    try:
        eventually(lambda: len(counted()) == 10, "outputs of both shares", within_s=120)
        before = [worker for worker in cluster.workers if cluster.executors(worker)]
        assert len(before) == 2
        paused = before[0]
        cluster.pause_machine(paused)
        at_pause = counted()
        eventually(
            lambda: any(cluster.executors(worker) for worker in cluster.workers if worker not in before),
            "a successor on the third worker",
            within_s=60,
        )
        eventually(
            lambda: all(now > at_pause[key] for key, now in counted().items()),
            "outputs of the successor",
            within_s=60,
        )
        assert process.poll() is None, "the zombie wakes while its successor is at work"
        cluster.pause_machine(paused, signal.SIGCONT)
        said, _ = process.communicate(timeout=patient(150))
    finally:
        process.kill()
    assert process.returncode == 0, said + job.log()
    counts = {key: [one["count"] for one in found] for key, found in job.outputs().items()}
    assert counts == {f"key{key}": list(range(1, records // 10 + 1)) for key in range(10)}
