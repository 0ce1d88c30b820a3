"""A query whose checkpoint location is on a real HDFS goes on with its state in a lineage there, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.kafka.test_migrate_spark import PROPERTIES, values_in
from tests.kafka.test_migrate_spark_state import APPLICATION as STATEFUL
from tests.kafka.test_migrate_spark_state import Stateful
from tests.support.counter_job import make_job
from tests.support.hdfs_files import files_of, grete

from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.hdfs import HdfsCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.nightly
def test_a_query_on_hdfs_goes_on_with_its_state_in_a_lineage_on_hdfs_and_back(
    spark: SparkSession,
    kafka: KafkaCluster,
    hdfs: HdfsCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = Stateful(spark, kafka.bootstrap, tmp_path, 1)
    query.prepare(tmp_path)
    query.send(100)
    at, back = f"{hdfs.bootstrap}/{query.out}", f"{hdfs.bootstrap}/{query.out}-back"
    query.drained(at)
    before = files_of(spark, at)
    query.send(80)
    text = STATEFUL.replace("OUT", query.out).replace("MODE", "append").replace("FUNCTION", "windows")
    properties = PROPERTIES.format(
        application="app.class=counter:Again",
        inputs=f"kafka.{query.topics[0]}",
        out=query.out,
        bootstrap=kafka.bootstrap,
        name=query.out,
    )
    job = make_job(tmp_path / "job", text, f"{properties}job.lineage.dir={hdfs.bootstrap}/lineages\n")
    monkeypatch.setenv("GRETE_HOME", str(job.home))
    migrate = ["migrate", "spark", "--checkpoint", at, "--config", str(job.config), "--state", "keep"]
    done = grete(*migrate, "--execute")
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_of(spark, at) == before
    ran = job.run()
    assert ran.returncode == 0, ran.stderr + job.log()
    assert not list(job.home.rglob("lineages")), "they are on HDFS"
    expected = query.final(query.drained(at))
    assert query.final(values_in(query)) == expected != []
    done = grete("migrate", "to-spark", "--config", str(job.config), "--checkpoint", back, "--execute")
    assert done.returncode == 0, done.stdout + done.stderr
    query.send(50)
    assert query.final(query.drained(back)) == query.final(query.drained(at)) != []
