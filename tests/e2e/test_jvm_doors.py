"""Each private door to Spark's JVM leads where its name says: what a new version of Spark has to be tried with."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from pyspark.sql import SparkSession

from grete.spark import jvm

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def test_a_session_and_its_context_are_found_in_the_jvm(spark: SparkSession) -> None:
    context = spark.sparkContext
    version = context.version
    for running in (spark, context):
        assert jvm.jvm_of(running).org.apache.spark.package.SPARK_VERSION() == version
    assert jvm.jvm_of_process() is jvm.jvm_of(spark)
    assert jvm.gateway_of_process().proc.poll() is None
    assert jvm.gateway_of(context) is jvm.gateway_of_process()
    assert jvm.context_of_process() is context
    assert jvm.java_context(context).sc().applicationId() == context.applicationId
    assert jvm.conf_of(context).get("spark.master") == context.master
    assert jvm.hadoop_configuration(context).get("fs.defaultFS")
    assert jvm.java_session(spark).sessionUUID()
    assert jvm.java_conf({"spark.app.name": "own"}).get("spark.app.name") == "own"


def test_sessions_are_put_back_as_they_were(spark: SparkSession) -> None:
    before = jvm.sessions_of_python()
    assert before[0] is jvm.default_session()
    try:
        jvm.put_back((None, None))
        assert jvm.default_session() is None
    finally:
        jvm.put_back(before)
    assert jvm.sessions_of_python() == before
    assert jvm.java_sessions(spark).getDefaultSession().isDefined()


def test_what_is_numpys_is_converted_for_the_jvm_and_nothing_else_is_asked_for(spark: SparkSession) -> None:
    root = jvm.jvm_of(spark)
    assert root.java.util.Arrays.toString(numpy.array([1, 2])) == "[1, 2]"
    assert root.java.lang.Math.abs(numpy.int64(-3)) == 3
    converters = jvm.gateway_of_process()._gateway_client.converters
    asked = [one for one in converters if one.can_convert("a text")]
    assert not asked


def test_a_frame_and_collections_are_those_of_the_jvm(spark: SparkSession) -> None:
    execution = jvm.query_execution(spark.range(3).where("id > 1"))
    assert "Filter" in execution.analyzed().toString()
    root = jvm.jvm_of(spark)
    assert jvm.java_seq(root, ["a", "b"]).mkString() == "ab"
    options = root.java.util.HashMap()
    options.put("a", "1")
    assert jvm.java_map(root, options).size() == 1


def test_a_query_is_the_one_of_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 hour").start()
    try:
        assert jvm.java_query(query).id().toString() == query.id
    finally:
        query.stop()
