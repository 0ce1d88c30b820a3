"""Checkpoint locations on a real HDFS of queries that grete takes over."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import uuid
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from tests.support.hdfs_files import files_of, grete

from grete.cli.main import main
from grete.migration.spark_query import read_query
from grete.model.streams import StreamSpec
from grete.spark.lineage import hadoop_files
from grete.spark.lineage.hadoop_files import HadoopLocation
from grete.systems.local.system import LocalSystem
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.hdfs import HdfsCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]

QUERIES = Path(__file__).parents[1] / "unit" / "migration" / "spark_checkpoints"
TAKEN_OVER = """
job.name={name}
app.class=views:Views
task.inputs=kafka.{topic}
task.checkpoint.replication.factor=1
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.consumer.bootstrap.servers={bootstrap}
spark.master=spark://is.not.asked:7077
spark.hadoop.fs.viewfs.mounttable.queries.link./of=${{env:OLD_QUERIES}}
"""


@pytest.mark.nightly  # the tests below look at it, and a lineage on HDFS is of every run
def test_a_query_goes_on_from_a_checkpoint_location_on_hdfs_which_stays_as_it_is(
    spark: SparkSession,
    kafka: KafkaCluster,
    hdfs: HdfsCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By an address that only the job's own settings of Spark explain, one of which is a reference."""
    name = f"views-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(10):
        producer.produce(name, b"x", partition=number % 2)
    assert producer.flush(30) == 0
    rows = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": name, "startingOffsets": "earliest"}
    )
    writer = rows.load().writeStream.foreachBatch(lambda batch, number: None).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{hdfs.bootstrap}/{name}").start().awaitTermination()
    before = files_of(spark, f"{hdfs.bootstrap}/{name}")
    assert any("/commits/0" in file for file in before)

    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    monkeypatch.setenv("OLD_QUERIES", f"{hdfs.bootstrap}/")
    config = tmp_path / "views.properties"
    config.write_text(TAKEN_OVER.format(name=name, topic=name, bootstrap=kafka.bootstrap))
    address = f"viewfs://queries/of/{name}/"
    words = ["migrate", "spark", "--checkpoint", address, "--config", str(config), "-o", "json"]
    done = grete(*words, "--execute")
    assert (done.returncode, done.stderr) == (0, f"grete: asking Spark for {address[:-1]}\n")
    document = json.loads(done.stdout)
    assert (document["executed"], document["committed"], document["checkpoint"]) == (True, 0, address[:-1])
    written = {ssp: offset for task in document["tasks"] for ssp, offset in task["checkpoint"].items()}
    assert written == {f"kafka.{name}.0": "4", f"kafka.{name}.1": "4"}
    assert files_of(spark, f"{hdfs.bootstrap}/{name}") == before


def test_of_a_query_on_hdfs_the_same_is_read_as_of_its_copy_on_a_disk(
    spark: SparkSession, hdfs: HdfsCluster
) -> None:
    jvm: Any = spark._jvm
    path, configuration = jvm.org.apache.hadoop.fs.Path, spark.sparkContext._jsc.hadoopConfiguration()
    for name in ("spark-4.2.0-stateful", "spark-4.2.0-log-2"):
        folder, address = QUERIES / name, f"{hdfs.bootstrap}/copies/{name}"
        path(address).getFileSystem(configuration).copyFromLocalFile(path(folder.as_uri()), path(address))
        query = read_query(HadoopLocation.of(spark, address, "--checkpoint"))
        assert abs(time.time() - (query.committed_at_s or 0)) < 300, "when the copy was written"
        same = {"folder": folder, "committed_at_s": None}
        assert replace(query, **same) == replace(read_query(folder), **same)


def test_a_checkpoint_location_that_is_not_there_or_does_not_answer_is_named(
    spark: SparkSession,
    hdfs: HdfsCluster,
    home: Path,
    system: LocalSystem,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is never taken for one of a query that has read nothing."""
    system.create_stream(StreamSpec("views", 2))
    config = home / "job.properties"
    config.write_text("job.name=views\napp.class=views:Views\ntask.inputs=local.views\n")

    def said(address: str) -> tuple[int, str]:
        code = main(["migrate", "spark", "--checkpoint", address, "--config", str(config), "--execute"])
        asked, problem = capsys.readouterr().err.splitlines()
        assert asked == f"grete: asking Spark for {address}"
        assert address in problem
        return code, problem

    code, problem = said(f"{hdfs.bootstrap}/no/such/query")
    assert (code, f"there is no folder {hdfs.bootstrap}/no/such/query/offsets" in problem) == (2, True)
    for address, way_out in (
        ("nosuch://bucket/query", "spark.jars.packages"),
        ("hdfs:///query", "HADOOP_CONF_DIR"),
        ("hdfs://127.0.0.1:1234567/query", "scheme://host/folder"),
        ("file://other/query", "scheme://host/folder"),
    ):
        code, problem = said(address)
        assert (code, way_out in problem) == (2, True), problem
    code, problem = said("hdfs://names.invalid/query")
    assert (code, "UnknownHostException" in problem, "HADOOP_CONF_DIR" in problem) == (1, True, True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(hadoop_files, "_ANSWERS_WITHIN_S", 1.0)
        code, problem = said(f"hdfs://127.0.0.1:{silent.getsockname()[1]}/query")
    assert (code, "no answer within 1 s" in problem) == (1, True)


FILE_SYSTEM = """
package mine;

public class Mine extends org.apache.hadoop.fs.RawLocalFileSystem {
  @Override public java.net.URI getUri() { return java.net.URI.create("mine:///"); }
}
"""


def test_classes_of_the_users_own_jars_are_found_and_a_spark_that_does_not_start_says_why(
    home: Path, system: LocalSystem
) -> None:
    system.create_stream(StreamSpec("views", 2))
    (home / "Mine.java").write_text(FILE_SYSTEM)
    jars, built = Path(pyspark.__file__).parent / "jars", home / "built"
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", built, home / "Mine.java"], check=True)
    with zipfile.ZipFile(home / "mine.jar", "w") as jar:
        jar.write(built / "mine" / "Mine.class", "mine/Mine.class")
    config = home / "job.properties"
    config.write_text(
        "job.name=views\napp.class=views:Views\ntask.inputs=local.views\nspark.hadoop.fs.mine.impl=mine.Mine\n"
        f"spark.jars={home / 'mine.jar'}\n"
    )
    address = f"mine://{QUERIES / 'spark-4.2.0-log-2'}"
    words = ["migrate", "spark", "--checkpoint", address, "--config", str(config)]
    done = grete(*words)
    assert f"{address}: query ac48a06e" in done.stdout, done.stderr
    with config.open("a") as file:
        file.write("spark.driver.memory=much\n")
    done = grete(*words)
    assert done.returncode == 1
    assert "Spark did not start" in done.stderr
    assert "Invalid maximum heap size: -Xmxmuch" in done.stderr
