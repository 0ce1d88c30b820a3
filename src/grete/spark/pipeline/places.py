"""Folders in which executors write for a pipeline: on a cluster those that its next executors, and its driver, see
too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from grete.config.key_tables.job import LINEAGE_DIR
from grete.config.key_tables.outputs import OUTPUT_PATH
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.spark.executors.preflight import not_shared
from grete.spark.jvm import hadoop_configuration, jvm_of
from grete.spark.pipeline.plan_checks import keeps_state


def check_places(
    spark: SparkSession, settings: Settings, query: DataFrame, outputs: Iterable[str], lineages: Path | str
) -> None:
    """See that state and outputs are not on each executor's own disk, whether the pipeline has begun or not.

    `outputs` are those that are no streams. Nothing is looked at on a local master, and of lineages that are on a
    file system of Hadoop's, which all reach by its address.

    Raises:
        ConfigError: the folder of lineages, or of an output, is not shared; all of them, with the way out.
    """
    if settings.spark.is_local:
        return
    written: dict[str, tuple[Path, str]] = {}
    if isinstance(lineages, Path) and (operator := keeps_state(query)):
        written[LINEAGE_DIR.name] = lineages, f"the pipeline keeps state ({operator})"
    for name in sorted(outputs):
        own = settings.outputs.get(name)
        if own is not None and own.path and (folder := _of_this_machine(spark, own.path)) is not None:
            written[OUTPUT_PATH.named(name)] = folder, f"output {name!r} is files"
    found = [not_shared(spark.sparkContext, folder, key, what) for key, (folder, what) in written.items()]
    if problems := [problem for problem in found if problem is not None]:
        raise ConfigError(*problems)


def _of_this_machine(spark: SparkSession, path: str) -> Path | None:
    """A path as Hadoop reads it, where that is a folder of this machine; None on any other file system."""
    jvm = jvm_of(spark.sparkContext)
    named = jvm.org.apache.hadoop.fs.Path(path)
    files = named.getFileSystem(hadoop_configuration(spark.sparkContext))
    return Path(files.makeQualified(named).toUri().getPath()) if files.getScheme() == "file" else None
