"""An output of files in an object store: written where they stay, and there for readers when they are listed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from grete.api import Batch
from grete.config.key_tables.outputs import OUTPUT_PATH
from grete.config.settings.outputs import OutputSettings
from grete.errors import Fenced, FilesUnreachable
from grete.failpoints import failpoint
from grete.model.fence import Fence
from grete.spark.lineage.hadoop_files import HadoopLocation
from grete.spark.sinks.base import compute_only
from grete.spark.sinks.file_list import LIST, FileList, Objects
from grete.spark.sinks.files import BATCH_OF, COLUMN, STAGING
from grete.spark.sinks.unlisted_files import write_unlisted
from grete.systems.commit_group import SegmentWrite


@dataclass(frozen=True, slots=True)
class HadoopObjects:
    """See Objects: a folder of a file system of Hadoop's that makes files where there are none."""

    folder: HadoopLocation

    def __str__(self) -> str:
        return str(self.folder)

    def names(self) -> list[str]:
        """See Objects."""
        try:
            return [one.name for one in self.folder.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        """See Objects."""
        return (self.folder / name).read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        """See Objects."""
        return (self.folder / name).create_bytes(content)

    def remove(self, name: str) -> None:
        """See Objects."""
        (self.folder / name).remove()


class ListedFilesSink:
    """Files under `path/grete_batch=<batch>/`, as `FilesSink` has them, by one commit and without a rename.

    Spark's tasks write them where they stay, under names of their own. What counts is in the list that Spark's own
    file sink keeps too, `path/_spark_metadata`, and a batch is added to it by one object that is made if it is not
    there. So readers of Spark's see a batch whole or not at all. Others see what killed containers have left as well.

    Each incarnation of the container leaves its epoch in `path/_grete/<owner>/epochs`, and after it an entry in the
    list. So what an earlier one had not added by then it cannot add any more: its number is taken, it looks why, and
    finds the epoch. What earlier versions or other file systems' renames have published is added first.
    """

    def __init__(self, spark: SparkSession, settings: OutputSettings, owner: str, fence: Fence) -> None:
        self._spark = spark
        self._settings = settings
        self._fence = fence
        self._path = HadoopLocation.of(
            spark, settings.target_path.rstrip("/"), OUTPUT_PATH.named(settings.name)
        )
        self._of_owner = self._path / STAGING / owner
        self._epochs = self._objects(self._of_owner / "epochs")
        self._list = FileList(self._objects(self._path / LIST), BATCH_OF, self._refuse_later)
        self._is_claimed = False

    def write(self, rows: DataFrame, batch: Batch) -> Iterable[SegmentWrite]:
        """Write the files and list them, unless they are.

        Raises:
            Fenced: a later incarnation of the container writes these files.
            ConfigError, FilesUnreachable: the store refuses it, or does not answer.
        """
        if not self._is_claimed:
            self._claim(batch)
        if batch.id in self._list:
            compute_only(rows)
            return ()
        folder = f"{self._path}/{COLUMN}={batch.id}"
        try:
            lines = write_unlisted(self._spark, rows, self._settings, folder)
        except (PySparkException, Py4JError):
            self._refuse_later()
            raise
        failpoint("sink.staged")
        self._list.add(lines, batch.id)
        failpoint("sink.committed")
        return ()

    def _claim(self, batch: Batch) -> None:
        """Take the place of every earlier incarnation. What it has listed is there, and nothing more will be."""
        self._epochs.create(str(self._fence.epoch), b"")
        self._list.begin(lambda: self._published_by_rename(batch))
        self._is_claimed = True
        self._remove_earlier()

    def _published_by_rename(self, batch: Batch) -> list[str]:
        """Lines for the files of all batches in a folder without a list; of `batch` there may be half of them."""
        if not self._path.is_dir():
            return []
        files, own = self._path.files_below(), f"{COLUMN}={batch.id}"
        return [
            json.dumps({**_LINE, "path": one.uri, "size": one.size, "modificationTime": one.modified_ms})
            for one in files
            if (found := BATCH_OF.search(one.uri)) and f"{COLUMN}={found[1]}" != own and not one.is_hidden
        ]

    def _remove_earlier(self) -> None:
        try:
            for place in (self._of_owner, self._of_owner / "epochs"):
                for one in place.iterdir():
                    if one.name.isdigit() and int(one.name) < self._fence.epoch:
                        one.remove()
        except (FilesUnreachable, FileNotFoundError):
            return  # it only takes room: the next start removes it

    def _refuse_later(self) -> None:
        seen = max((int(name) for name in self._epochs.names() if name.isdigit()), default=0)
        if seen > self._fence.epoch:
            self._is_claimed = False  # a batch that the successor has listed is refused as well
            raise Fenced(f"{self._of_owner}", epoch=self._fence.epoch, seen=seen)

    def _objects(self, folder: HadoopLocation) -> Objects:
        return HadoopObjects(folder)

    def close(self) -> None:
        """Nothing is held."""


_LINE = {"isDir": False, "blockReplication": 1, "blockSize": 1 << 25, "action": "add"}
"""What Spark wants to know of a file besides, and does not use to read it."""
