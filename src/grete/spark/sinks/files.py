"""An output of files: a folder for each batch, which readers see whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from grete.api import Batch
from grete.config.settings.outputs import OutputSettings
from grete.errors import JobError
from grete.failpoints import failpoint
from grete.spark.sinks.base import compute_only
from grete.systems.commit_group import SegmentWrite

COLUMN = "grete_batch"
_STAGING = "_grete"


class FilesSink:
    """Files under `path/grete_batch=<batch>/`, written beside and renamed: `spark.read` takes the batch for a column.

    A batch that is repeated finds its folder and leaves it. Exactly once where a folder is renamed in one step, as on
    local disks and HDFS. Files cannot tell who writes them: a driver that was succeeded while it wrote may leave a
    batch of its lineage.
    """

    def __init__(self, spark: SparkSession, settings: OutputSettings, owner: str) -> None:
        self._format = settings.format
        self._path = settings.target_path.rstrip("/")
        self._options = settings.options
        self._partition_by = settings.partition_by
        self._staging = f"{self._path}/{_STAGING}/{owner}"
        self._jvm = spark._jvm
        self._files = self._at(self._path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._files.delete(self._at(self._staging), True)

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """Write the folder, unless it is there."""
        target, staged = f"{self._path}/{COLUMN}={batch.id}", f"{self._staging}/{batch.id}"
        if self._files.exists(self._at(target)):
            compute_only(rows)
            return ()
        writer = rows.write.format(self._format).mode("overwrite").options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(staged)
        failpoint("sink.staged")
        self._publish(staged, target)
        return ()

    def _publish(self, staged: str, target: str) -> None:
        try:
            done = self._files.rename(self._at(staged), self._at(target))
        except Py4JJavaError as error:
            raise JobError(f"cannot rename {staged} to {target}: {error.java_exception}") from error
        if not done:
            raise JobError(f"cannot rename {staged} to {target}: the file system refuses it")

    def _at(self, path: str) -> Any:
        assert self._jvm is not None
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def close(self) -> None:
        """Nothing is held."""
