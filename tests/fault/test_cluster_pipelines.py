"""Outputs on Kafka of pipelines on executors of a cluster: in the transaction of their checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.support.cluster_job import ClusterJob

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(300)]
RECORDS, BATCH, KEYS = 3_000, 300, 10
KILLS = ("batch.after-run:kill:4", "commit.in-transaction:kill:3")
PIPELINE = """
import time

import grete
from pyspark.sql import functions as F

class Numbered(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()

        @F.udf("string")
        def slowly(offset):
            time.sleep(0.002)
            return str(offset)

        return {"OUTPUT": frame.select("key", slowly("offset").alias("value"))}
"""


@pytest.fixture
def job(kafka: KafkaCluster, isolated_cluster: SparkCluster, tmp_path: Path) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path)
    made.write("numbered.py", PIPELINE.replace("OUTPUT", f"kafka.{made.output}"))
    made.config |= {"app.class": "numbered:Numbered", "task.max.records.per.batch": str(BATCH)}
    yield made
    isolated_cluster.ensure_running()


def committed(bootstrap: str, job: ClusterJob) -> Counter[tuple[bytes | None, bytes | None]]:
    """Keys and values that a reader of what is committed finds, which knows nothing of grete."""
    found: Counter[tuple[bytes | None, bytes | None]] = Counter()
    settings = {"bootstrap.servers": bootstrap, "group.id": job.name, "enable.partition.eof": True}
    with closing(Consumer({**settings, "isolation.level": "read_committed"})) as consumer:
        ended = 0
        consumer.assign([TopicPartition(job.output, one, 0) for one in range(job.output_partitions)])
        while ended < job.output_partitions:
            message = consumer.poll(patient(30))
            assert message is not None
            if message.error() is None:
                assert message.headers() is None, "no stamps"
                found[message.key(), message.value()] += 1
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended += 1
    return found


@pytest.mark.nightly  # 90 s; `kafka/test_pipelines.py` kills a local one at each step of a batch in every run
def test_each_row_is_there_once_for_any_reader_though_executors_and_the_driver_are_killed_in_their_batches(
    job: ClusterJob,
    kafka: KafkaCluster,
    isolated_cluster: SparkCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Tasks are tried again, as that of a lost executor is; the driver takes the rows of each once."""
    died = tmp_path / "died"
    died.mkdir()
    monkeypatch.setenv("GRETE_FAILPOINT", ",".join(KILLS))
    monkeypatch.setenv("GRETE_FAILPOINT_ONCE", str(died))
    monkeypatch.setenv("GRETE_FAILPOINT_CONTAINER", "0")
    job.fill(RECORDS, keys=KEYS)
    process = job.start()
    try:
        eventually(lambda: sum(committed(kafka.bootstrap, job).values()) >= BATCH, "a batch", within_s=150)
        isolated_cluster.kill_machine(isolated_cluster.workers[0])
        isolated_cluster.ensure_running()
        said, _ = process.communicate(timeout=patient(200))
    finally:
        process.kill()
    assert process.returncode == 0, said + job.log()
    assert len(list(died.iterdir())) == len(KILLS), "both were reached"
    keys = {partition: [key for key in range(KEYS) if key % 2 == partition] for partition in range(2)}
    expected = {
        (b"key%d" % keys[partition][offset % 5], b"%d" % offset)
        for partition in range(2)
        for offset in range(RECORDS // 2)
    }
    assert committed(kafka.bootstrap, job) == dict.fromkeys(expected, 1)
