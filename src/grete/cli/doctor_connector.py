"""Spark's Kafka connector: its version is Spark's, or the first batch fails with a missing class."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

from grete.cli.doctor_finding import Finding
from grete.config.settings.spark import SparkSettings

_CONNECTOR = re.compile(
    r"spark-sql-kafka-0-10_(?P<scala>[0-9.]+?)[:-](?P<version>\d[\w.]*?)(?=\.jar|[,\s]|\Z)"
)
_SCALA = "2.13"


def connector(given: SparkSettings) -> Iterator[Finding]:
    """Each connector that the configuration names, against the Spark that is installed."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return  # another check says so
    for key, value in (("spark.jars.packages", given.packages), ("spark.jars", given.jars)):
        for match in _CONNECTOR.finditer(value):
            fits = (match["scala"], match["version"]) == (_SCALA, spark)
            yield Finding(
                "kafka connector",
                fits,
                f"{key} has version {match['version']} for Scala {match['scala']}, Spark is {spark} for {_SCALA}",
                f"write org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{spark}",
            )
