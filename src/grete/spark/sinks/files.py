"""An output of files: a folder for each batch, which readers see whole or not at all."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from grete.api import Batch
from grete.config.settings.outputs import OutputSettings
from grete.errors import ConfigError, Fenced, JobError
from grete.failpoints import failpoint
from grete.model.fence import Fence
from grete.spark.jvm import hadoop_configuration, jvm_of
from grete.spark.sinks.base import compute_only
from grete.spark.sinks.file_list import LIST
from grete.systems.commit_group import SegmentWrite

COLUMN = "grete_batch"
BATCH_OF = re.compile(rf"/{COLUMN}=([^/]+)/")
"""Finds the batch of a file by its path."""
STAGING = "_grete"
_ATTEMPTS = 100


class FilesSink:
    """Files under `path/grete_batch=<batch>/`, written beside and renamed: `spark.read` takes the batch for a column.

    A batch that is repeated finds its folder and leaves it. Exactly once where a folder is renamed in one step, as on
    local disks, NFS and HDFS; `ListedFilesSink` is for stores that make a file in one step instead.

    Each incarnation of the container writes in a folder of its epoch, `path/_grete/<owner>/<epoch>/`, and publishes
    by a rename out of it. A later one first takes the folders of lower epochs away and puts an empty file in the
    place of each. So what an earlier one had not published by then it cannot publish any more, however long it was
    paused: its folder is not there, and cannot be made. One that begins late finds the folder of a higher epoch.
    """

    def __init__(self, spark: SparkSession, settings: OutputSettings, owner: str, fence: Fence) -> None:
        self._name = settings.name
        self._format = settings.format
        self._path = settings.target_path.rstrip("/")
        self._options = settings.options
        self._partition_by = settings.partition_by
        self._of_owner = f"{self._path}/{STAGING}/{owner}"
        self._staging = f"{self._of_owner}/{fence.epoch}"
        self._fence = fence
        self._is_claimed = False
        self._jvm = jvm_of(spark)
        self._files = self._at(self._path).getFileSystem(hadoop_configuration(spark.sparkContext))

    def write(self, rows: DataFrame, batch: Batch) -> Iterable[SegmentWrite]:
        """Write the folder, unless it is there.

        Raises:
            Fenced: a later incarnation of the container writes these files.
            JobError: the file system refuses it.
        """
        if not self._is_claimed:
            self._claim()
        target, staged = f"{self._path}/{COLUMN}={batch.id}", f"{self._staging}/{batch.id}"
        if self._files.exists(self._at(target)):
            compute_only(rows)
            return ()
        writer = rows.write.format(self._format).mode("overwrite").options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        try:
            writer.save(staged)
        except (PySparkException, Py4JError):
            self._refuse_later()
            raise
        failpoint("sink.staged")
        self._publish(staged, target)
        failpoint("sink.committed")
        return ()

    def _claim(self) -> None:
        """Take the place of every earlier incarnation. What it has published is there, and nothing more will be."""
        if self._files.exists(self._at(f"{self._path}/{LIST}")):
            raise ConfigError(
                f"{self._path}/{LIST} lists the files that count in this folder, and Spark's readers see no other: "
                f"a streaming query of Spark's writes there, or this job did where its file system could add to the "
                f"list. Name another folder by outputs.{self._name}.path; or move the list away, if what killed "
                f"writers have left may be seen"
            )
        self._done("make", self._staging, lambda: self._files.mkdirs(self._at(self._staging)))
        for epoch in self._epochs():
            if epoch < self._fence.epoch:
                self._retire(f"{self._of_owner}/{epoch}")
        self._refuse_later()
        self._files.delete(self._at(self._staging), True)  # of a run that failed and was begun again
        self._done("make", self._staging, lambda: self._files.mkdirs(self._at(self._staging)))
        self._is_claimed = True

    def _retire(self, folder: str) -> None:
        """Put a file in the folder's place. Its owner may make the folder again in between, so it takes turns."""
        for _ in range(_ATTEMPTS):
            status = self._files.getFileStatus(self._at(folder))
            if status.isFile():
                return
            gone = f"{self._of_owner}/gone-{uuid.uuid4().hex}"
            self._files.rename(self._at(folder), self._at(gone))
            self._files.delete(self._at(gone), True)
            try:
                self._files.create(self._at(folder), False).close()
            except Py4JJavaError:
                continue  # it is a folder again
        raise JobError(
            f"{folder} is made again and again by an earlier run of the container: end that process"
        )

    def _epochs(self) -> list[int]:
        names = [one.getPath().getName() for one in self._files.listStatus(self._at(self._of_owner))]
        return [int(name) for name in names if name.isdigit()]

    def _refuse_later(self) -> None:
        if (seen := max(self._epochs(), default=0)) > self._fence.epoch:
            raise Fenced(f"{self._of_owner}", epoch=self._fence.epoch, seen=seen)

    def _publish(self, staged: str, target: str) -> None:
        self._done(
            f"rename to {target}", staged, lambda: self._files.rename(self._at(staged), self._at(target))
        )

    def _done(self, what: str, path: str, act: Any) -> None:
        """Do what the file system may refuse by a word or by an exception."""
        try:
            reason = "" if act() else "the file system refuses it"
        except Py4JJavaError as error:
            reason = str(error.java_exception)
        if reason:
            if self._files.exists(self._at(self._of_owner)):
                self._refuse_later()
            raise JobError(f"cannot {what}: {path}: {reason}")

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def close(self) -> None:
        """Nothing is held; the next incarnation takes away what is left."""
