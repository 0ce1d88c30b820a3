"""A coordinator that decides how many executors its pipeline has on a cluster, and how long its batches are."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.cluster_job import ClusterJob

from grete.http_client import JobCoordinatorClient
from grete.model.ids import JobId
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(800)]
RECORDS, BATCH, KEYS = 12_000, 1_500, 10
PIPELINE = """
import time

import grete
from pyspark.sql import functions as F

class Numbered(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()

        @F.udf("string")
        def slowly(offset):
            time.sleep(0.01)
            return str(offset)

        return {"OUTPUT": frame.select("key", slowly("offset").alias("value"))}
"""
SETTINGS = {
    "app.class": "numbered:Numbered",
    "task.max.records.per.batch": str(BATCH),
    "job.autosizing.enabled": "true",
    "job.autosizing.policy": "lag",
    "job.autosizing.executor.count": "1",
    "job.autosizing.executor.most": "2",
    "job.autosizing.lag.ms": "5000",
    "job.autosizing.up.after.ms": "20000",
    "job.autosizing.down.after.ms": "20000",
    "job.coordinator.monitor-lag.frequency.ms": "1000",
}


def test_a_pipeline_that_is_behind_gets_shorter_batches_and_an_executor_more_and_gives_it_back(
    kafka: KafkaCluster, isolated_cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path, partitions=4)
    monkeypatch.setenv("GRETE_HOME", str(job.home))
    monkeypatch.setenv("GRETE_TEST_BROKERS", kafka.bootstrap)
    job.write("numbered.py", PIPELINE.replace("OUTPUT", f"kafka.{job.output}"))
    job.config |= SETTINGS
    job.until_drained = False
    job.fill(RECORDS, keys=KEYS)
    process = job.start()

    def there() -> int:
        return sum(len(isolated_cluster.executors(worker)) for worker in isolated_cluster.workers)

    def decided() -> int | None:
        with open_job(JobId(job.name)) as handle:
            return handle.settings.autosizing.executors

    def of_a_batch() -> int:
        with open_job(JobId(job.name)) as handle:
            return handle.settings.autosizing.batch_records

    def sizing() -> str:
        with open_job(JobId(job.name)) as handle:
            state = handle.state()
            assert state is not None, "it runs"
            with closing(JobCoordinatorClient(state.url, Path(state.token_file))) as client:
                return str(client.get("/api/v1/job")["sizing"])

    try:
        eventually(lambda: job.outputs(), "it runs", within_s=150)
        eventually(lambda: there() == 1, "what Spark took at its start is given back")
        eventually(lambda: of_a_batch() < BATCH, "shorter batches are decided", within_s=180, context=sizing)
        eventually(lambda: decided() == 2, "one more is decided", within_s=120, context=sizing)
        eventually(lambda: there() == 2, "it is there")
        eventually(lambda: decided() == 1, "it is given back", within_s=200)
        eventually(lambda: there() == 1, "it is gone")
        eventually(lambda: sum(map(len, job.outputs().values())) == RECORDS, "all is done", within_s=120)
        with open_job(JobId(job.name)) as handle:
            reasons = [row.details.get("reason", "") for row in handle.history()]
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=patient(90))
    for change in ("1 to 2", "2 to 1"):
        assert any(f"autosizing, {change} executors: " in reason for reason in reasons), reasons
    assert any(f"autosizing, {BATCH} to " in reason for reason in reasons), reasons
    assert job.committed() == Counter({f"key{key}": RECORDS // KEYS for key in range(KEYS)}), said
