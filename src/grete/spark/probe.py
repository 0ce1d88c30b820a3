"""Checks of Spark, none of which imports it: its packages, its versions, its archive of classes, its connector."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator

from grete.config.settings import Settings
from grete.config.settings.spark import SparkSettings
from grete.finding import Finding
from grete.spark.session.versions import (
    class_archive,
    installed,
    installed_refusal,
    takes_class_archive,
)

_CONNECTOR = re.compile(
    r"spark-sql-kafka-0-10_(?P<scala>[0-9.]+?)[:-](?P<version>\d[\w.]*?)(?=\.jar|[,\s]|\Z)"
)
_SCALA = "2.13"


def connector(given: SparkSettings) -> Iterator[Finding]:
    """Each connector that the configuration names has Spark's version, or the first batch misses a class."""
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


def packages() -> Finding:
    """Spark and what its Python side needs."""
    versions = {"pyspark": installed(), **{name: _version(name) for name in ("pyarrow", "pandas")}}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return Finding("spark", False, f"missing: {', '.join(missing)}", "pip install 'grete[spark]'")
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    why = installed_refusal()
    if why or not (versions["pandas"] or "").startswith("2."):
        return Finding("spark", False, found, why or "grete needs pandas 2: pip install 'grete[spark]'")
    return Finding("spark", True, found)


def _version(name: str) -> str | None:
    return importlib.metadata.version(name) if importlib.util.find_spec(name) is not None else None


def findings(settings: Settings) -> Iterator[Finding]:
    """Whether the job can run on the Spark that is here, and how it starts."""
    yield from _version_for(settings)
    yield from _class_archive(settings)


def _version_for(settings: Settings) -> Iterator[Finding]:
    """Whether the job can run on the Spark that is here, where others can."""
    if not installed_refusal() and (why := installed_refusal(settings)):
        yield Finding("spark", False, f"pyspark {installed()}", why)


def _class_archive(settings: Settings) -> Iterator[Finding]:
    """Whether the job starts from an archive of Spark's classes, where it would take one. It runs without, too."""
    said = settings.spark.driver_java_options, os.environ.get("SPARK_SUBMIT_OPTS", "")
    if installed() is None or not takes_class_archive(*said):
        return
    archive = class_archive()
    found = f"none at {archive}; for starts with a third less work: python -m grete.spark.class_archive"
    yield Finding("class archive", True, str(archive) if archive.exists() else found)
