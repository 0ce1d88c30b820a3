"""Files that tasks of Spark's write where they stay, as those of its own streaming file sink, and no list has yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import DataFrame, SparkSession

from grete.config.settings.outputs import OutputSettings
from grete.errors import ConfigError
from grete.spark.jvm import gateway_of, java_map, java_seq, java_session, jvm_of, query_execution

_OF_FILES = "org.apache.spark.sql.execution.datasources.FileFormat"
_WITH_FILES = "org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2"
_VERSION = 1


def write_unlisted(
    spark: SparkSession, rows: DataFrame, settings: OutputSettings, folder: str
) -> Sequence[str]:
    """Write the rows into `folder`; returns the lines of the files, as `FileList` has them.

    Spark's driver notes them by itself, on a disk of its own: in the store that would be eight requests more.
    A task that is done again writes under other names, and what failed or was done twice is in no line. Other writers
    of the same folder do not matter, since nothing of it is looked at.

    Raises:
        ConfigError: the format is none of files, or a column of `partition.by` is not there.
        Py4JError, PySparkException: what Spark says.
    """
    with TemporaryDirectory(prefix="grete-files-") as noted:
        _write(spark, rows, settings, folder, Path(noted, "list").as_uri())
        return Path(noted, "list", "0").read_text().splitlines()[1:]


def _write(spark: SparkSession, rows: DataFrame, settings: OutputSettings, folder: str, noted: str) -> None:
    jvm, session = jvm_of(spark), java_session(spark)
    sources, streaming = (
        jvm.org.apache.spark.sql.execution.datasources,
        jvm.org.apache.spark.sql.execution.streaming,
    )
    none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    options = java_map(jvm, settings.options)
    configuration = session.sessionState().newHadoopConfWithOptions(options)
    committer = streaming.ManifestFileCommitProtocol(noted, folder)
    committer.setupManifestOptions(streaming.sinks.FileStreamSinkLog(_VERSION, session, noted, none), 0)
    execution = query_execution(rows)
    columns = execution.analyzed().output()
    place = getattr(sources, "FileFormatWriter$OutputSpec")(folder, java_map(jvm, {}), columns)
    figures = sources.BasicWriteJobStatsTracker(
        jvm.org.apache.spark.util.SerializableConfiguration(configuration),
        sources.BasicWriteJobStatsTracker.metrics(),
    )
    sources.FileFormatWriter.write(
        session,
        execution.executedPlan(),
        _file_format(spark, settings),
        committer,
        place,
        configuration,
        java_seq(jvm, _attributes(rows, columns, settings)),
        none,
        java_seq(jvm, [figures]),
        options,
        0,
    )


def _file_format(spark: SparkSession, settings: OutputSettings) -> Any:
    gateway, jvm = gateway_of(spark.sparkContext), jvm_of(spark)

    def made(kind: Any) -> Any:
        return kind.getConstructor(gateway.new_array(jvm.java.lang.Class, 0)).newInstance(
            gateway.new_array(jvm.java.lang.Object, 0)
        )

    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    found = made(sources.lookupDataSource(settings.format, java_session(spark).sessionState().conf()))
    if is_instance_of(gateway, found, _WITH_FILES):
        return made(found.fallbackFileFormat())
    if is_instance_of(gateway, found, _OF_FILES):
        return found
    raise ConfigError(f"outputs.{settings.name}.format={settings.format} is no format of files")


def _attributes(rows: DataFrame, columns: Any, settings: OutputSettings) -> list[Any]:
    """Spark's columns of `partition.by`, found as Spark finds them, whatever their case."""
    places = {name.lower(): place for place, name in enumerate(rows.columns)}
    lacking = [name for name in settings.partition_by if name.lower() not in places]
    if lacking:
        raise ConfigError(
            f"outputs.{settings.name}.partition.by={','.join(settings.partition_by)}: the output has no column "
            f"{lacking[0]!r}; it has {', '.join(rows.columns)}"
        )
    return [columns.apply(places[name.lower()]) for name in settings.partition_by]
