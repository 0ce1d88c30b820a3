"""The jars that outputs need, decided before the session starts: afterwards it is too late.

As with the connector to Kafka (`kafka_connector` beside this): what the configuration's `spark.*` keys or Spark's
own folder bring counts; else a folder of jars that were fetched before (`GRETE_SPARK_SINK_JARS`, or where
`make services` puts them); else Spark fetches them by `spark.jars.packages`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grete.config.settings import Settings
from grete.config.settings.outputs import DELTA, JDBC
from grete.spark.session.defaults import SNAPSHOT_PARTITIONS
from grete.spark.session.kafka_connector import added, jars_directory

_JARS, _PACKAGES = "spark.jars", "spark.jars.packages"
_WHERE = (_JARS, _PACKAGES, "spark.driver.extraClassPath")
_EXTENSIONS = "spark.sql.extensions"
_DELTA_SETTINGS = {
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@dataclass(frozen=True, slots=True)
class _Library:
    package: str
    jars: tuple[str, ...]
    """How the names of its jars begin, the first of the library itself."""


_DELTA = _Library("io.delta:delta-spark_2.13:4.3.1", ("delta-spark_", "delta-storage-"))
_POSTGRESQL = _Library("org.postgresql:postgresql:42.7.14", ("postgresql-",))


def output_settings(settings: Settings, options: Mapping[str, str], spark_jars: Path) -> dict[str, str]:
    """The `spark.*` options for the outputs that are configured, each with what `options` has under its name.

    Raises:
        ConfigError: an output has no format.
    """
    formats = {output.format for output in settings.outputs.values()}
    found = dict(options)
    if DELTA in formats:
        found = _with(found, _DELTA, spark_jars)
        for name, value in _DELTA_SETTINGS.items():
            given = found.get(name, "")
            if name.endswith("extensions") and given and value not in given.split(","):
                value = f"{given},{value}"
            found[name] = value if name.endswith("extensions") else given or value
        if found.get("spark.master", "").startswith("local"):
            found.setdefault(SNAPSHOT_PARTITIONS, str(os.cpu_count() or 2))
    if any(output.format == JDBC and output.is_postgresql for output in settings.outputs.values()):
        found = _with(found, _POSTGRESQL, spark_jars)
    return {name: value for name, value in found.items() if options.get(name) != value}


def needed_by_outputs(settings: Settings) -> dict[str, str]:
    """The settings without which an output does not work, and which a context alone can have.

    That the jars are there is looked at with each format (`spark.sinks.factory.check_format`).
    """
    has_delta = any(output.format == DELTA for output in settings.outputs.values())
    return {_EXTENSIONS: _DELTA_SETTINGS[_EXTENSIONS]} if has_delta else {}


def _with(options: dict[str, str], library: _Library, spark_jars: Path) -> dict[str, str]:
    main = library.jars[0].rstrip("-_")
    if any(main in options.get(name, "") for name in _WHERE) or any(
        spark_jars.glob(f"{library.jars[0]}*.jar")
    ):
        return options
    directory = jars_directory(None, "GRETE_SPARK_SINK_JARS", "spark-sinks-*")
    jars = [] if directory is None else sorted(directory.glob("*.jar"))
    if fetched := [str(jar) for jar in jars if jar.name.startswith(library.jars)]:
        return options | added(options, _JARS, fetched)
    return options | added(options, _PACKAGES, [library.package])
