"""Lineages of pipelines on a real HDFS: Spark's checkpoints and state, where no machine of the job has any of it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.cluster_job import ClusterJob

from grete.config.key_tables.job import LINEAGE_DIR
from grete.errors import ConfigError, LineagesUnreachable
from grete.spark.lineage import LineageInfo
from grete.spark.lineages_on_hadoop import HadoopLineages
from grete.testing.chaos.components import descendants
from grete.testing.hdfs import HdfsCluster
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.spark_cluster import SparkCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]
NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
KEYS = 10
KILLS = (
    *("lineage.locked:kill", "lineage.described:kill", "lineage.current:kill"),
    *("batch.after-run:kill", "commit.in-transaction:kill:2", "commit.after-transaction:kill:2"),
)
"""By night: each costs a start of Spark on the cluster."""
PIPELINE = """
import grete

class Counting(grete.DataFramePipeline):
    output_mode = "update"

    def build(self, inputs):
        [frame] = inputs.values()
        counts = frame.groupBy(frame["key"].cast("string").alias("key")).count()
        return {"OUTPUT": counts}
"""


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    cluster = HdfsCluster(tmp_path_factory.mktemp("hdfs"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def job(
    kafka: KafkaCluster, isolated_cluster: SparkCluster, hdfs: HdfsCluster, tmp_path: Path
) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path)
    made.write("counting.py", PIPELINE.replace("OUTPUT", f"kafka.{made.output}"))
    made.config |= {
        "app.class": "counting:Counting",
        "job.lineage.dir": f"{hdfs.bootstrap}/grete lineages",
        "task.max.records.per.batch": "100",
        "cluster-manager.container.retry.count": "-1",
    }
    yield made
    isolated_cluster.ensure_running()
    hdfs.ensure_running()


def counts(job: ClusterJob) -> dict[str, list[object]]:
    return {key: [one["count"] for one in records] for key, records in job.outputs().items()}


def test_state_on_hdfs_goes_on_when_the_driver_is_killed_and_its_machine_and_all_executors_are_lost(
    job: ClusterJob, isolated_cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died, kills = tmp_path / "died", KILLS if NIGHTLY else KILLS[1:2]
    died.mkdir()
    monkeypatch.setenv("GRETE_FAILPOINT", ",".join(kills))
    monkeypatch.setenv("GRETE_FAILPOINT_ONCE", str(died))
    monkeypatch.setenv("GRETE_FAILPOINT_CONTAINER", "0")
    job.fill(600, keys=KEYS)
    process = job.start()
    said, _ = process.communicate(timeout=patient(300))
    assert process.returncode == 0, said + job.log()
    assert len(list(died.iterdir())) == len(kills), "all were reached"
    assert counts(job) == {f"key{key}": list(range(10, 61, 10)) for key in range(KEYS)}

    for worker in isolated_cluster.workers:
        isolated_cluster.kill_machine(worker)
    isolated_cluster.ensure_running()
    shutil.rmtree(job.home)
    job.home.mkdir()
    job.fill(100, keys=KEYS, first=600)
    code, said = job.run()
    assert code == 0, said
    assert "continuing lineage" in job.log()
    assert counts(job) == {f"key{key}": list(range(10, 71, 10)) for key in range(KEYS)}


@pytest.mark.nightly
def test_a_driver_that_was_paused_in_a_batch_and_wakes_beside_its_successor_changes_nothing(
    job: ClusterJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No lock of files keeps the two apart there, as on two machines."""
    paused = tmp_path / "paused"
    paused.mkdir()
    job.config |= {"spark.master": "local[2]", "job.coordinator.lease.ttl.ms": "3000"}
    job.until_drained = False
    job.fill(600, keys=KEYS)
    monkeypatch.setenv("GRETE_FAILPOINT", "batch.after-run:stop:3")
    monkeypatch.setenv("GRETE_FAILPOINT_ONCE", str(paused))
    monkeypatch.setenv("GRETE_FAILPOINT_CONTAINER", "0")
    first = job.start()
    eventually(lambda: list(paused.iterdir()), "the pause", within_s=120, context=job.log)
    [container] = (pid for pid in descendants(first.pid) if is_container(pid))
    first.kill()
    first.wait()
    monkeypatch.delenv("GRETE_FAILPOINT")

    job.home, job.until_drained = tmp_path / "of another machine", True
    code, said = job.run("--standby")
    assert code == 0, said
    assert "continuing lineage" in job.log()
    expected = {f"key{key}": list(range(10, 61, 10)) for key in range(KEYS)}
    assert counts(job) == expected
    os.kill(container, signal.SIGCONT)
    eventually(lambda: not is_container(container), "the end of the one that was succeeded", within_s=120)
    assert counts(job) == expected
    job.fill(100, keys=KEYS, first=600)
    code, said = job.run()
    assert code == 0, said
    assert "starting lineage" not in job.log()
    assert counts(job) == {f"key{key}": list(range(10, 71, 10)) for key in range(KEYS)}


def is_container(pid: int) -> bool:
    with suppress(OSError):
        return b"grete.spark.container" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_lineages_are_kept_there_as_on_a_disk(spark: SparkSession, hdfs: HdfsCluster) -> None:
    place = f"{hdfs.bootstrap}/as on a disk/job-1/container-0/lineages"
    lineages = HadoopLineages(spark, place)
    assert lineages.current() is None
    begun = [lineages.start({"kafka.in.0": number}, "the plan", ["kafka.in"]) for number in range(6)]
    assert HadoopLineages(spark, place).current() == begun[-1]
    assert lineages.progress(begun[-1]) is not None, "its folder is there"
    assert [lineages.progress(one) is not None for one in begun] == [False, False, True, True, True, True]
    assert lineages.planned_settings(begun[-1]) == {}
    other = LineageInfo(begun[-1].id, {"kafka.in.0": 5}, "the plan", ("kafka.in",), "an aggregation")
    lineages.go_on(other)
    assert lineages.current() == other
    (lineages._root / "current.json").write_bytes(b"{")
    assert lineages.current() is None


def test_a_place_that_does_not_answer_or_that_spark_does_not_know_is_named(
    spark: SparkSession, hdfs: HdfsCluster
) -> None:
    lineages = HadoopLineages(spark, f"{hdfs.bootstrap}/away")
    begun = lineages.start({"kafka.in.0": 0}, "the plan")
    hdfs.kill(1)
    try:
        with pytest.raises(LineagesUnreachable, match=f"{LINEAGE_DIR.name}: {hdfs.bootstrap}/away"):
            lineages.current()
        with pytest.raises(LineagesUnreachable):
            lineages.progress(begun)
    finally:
        hdfs.ensure_running()
    assert lineages.current() == begun
    with pytest.raises(ConfigError, match=r"spark\.jars\.packages"):
        HadoopLineages(spark, "nosuch://bucket/folder")
    with pytest.raises(ConfigError, match="Name a folder"):
        HadoopLineages(spark, f"{hdfs.bootstrap}/away/current.json/folder")
