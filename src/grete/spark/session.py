"""The Spark session of a container: the job's `spark.*` settings over defaults that are safe and quick to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.spark.kafka_connector import connector_settings, could_not_start
from grete.spark.kafka_options import REDACTED_OPTIONS

EXIT_OUT_OF_MEMORY = 3
"""How a JVM ends that has no memory left; one that went on without could do anything."""
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.master.rest.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stopTimeout": "120s",  # Spark's own default is to wait for ever
    "spark.sql.redaction.options.regex": REDACTED_OPTIONS,
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sensitive|sas|jaas|credential",
}


def build_session(
    app_name: str, config: Mapping[str, str], *, kafka_system: str | None = None
) -> SparkSession:
    """Start (or get) the session. Executors run the interpreter that runs us, so that packages are the same.

    With `kafka_system` it has the connector to Kafka (`grete.spark.kafka_connector`).

    Spark's ports ask who comes: on a local master by itself, elsewhere as the cluster's own configuration says, since
    all its processes share the secret, and one given here would stand in a command line.

    A shuffle on a local master gets as many partitions as there are cores: Spark's default of 200 costs a streaming
    aggregation over ten keys more in task starts than in work.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    given = Settings.of(config)
    settings = _DEFAULTS | given.spark.options
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings.setdefault(
            "spark.authenticate", "true"
        )  # with a secret that Spark draws and keeps to itself
        settings.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
    if kafka_system is not None:
        settings |= connector_settings(
            settings,
            given.system(kafka_system).connector_jars,
            spark_version=pyspark.__version__,
            spark_jars=_spark_jars(),
        )
    if "spark.driver.memory" not in given.spark.options:
        settings.setdefault(
            "spark.driver.maxResultSize", "512m"
        )  # Spark says what was too large, a full heap does not
    java = settings.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{java} -XX:+ExitOnOutOfMemoryError".strip()
    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise could_not_start(settings, error) from error
    session.sparkContext.setLogLevel(given.spark.options.get("spark.log.level", "WARN"))
    return session


def _spark_jars() -> Path:
    """Where Spark's own jars are."""
    return Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)) / "jars"
