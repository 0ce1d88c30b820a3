"""Lineages on a file system of Hadoop's (HDFS, S3, ...), as Spark reaches it: by its classes and with its settings.

There is no lock of files there, and none is needed for what is promised. Spark writes what a batch will read before
it runs, and refuses to replace that file of another query's: a predecessor that still lives, as one that was paused,
can run no other batch of that number than its successor does; and what it commits is fenced. That refusal is the
file system's: HDFS renames in one step and replaces nothing. Where one does not (S3 without a checkpoint manager for
it), two drivers at once may leave a log that our checkpoints do not agree with, which the next start names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import SparkSession

from grete.config.key_tables.job import LINEAGE_DIR
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.files import Lineages
from grete.spark.lineage.hadoop_files import HadoopLocation


class HadoopLineages(Lineages):
    """Lineages on a file system of Hadoop's."""

    def __init__(self, root: HadoopLocation, topics: Mapping[str, str] = MappingProxyType({})) -> None:
        """See Lineages.

        Raises:
            ConfigError, FilesUnreachable: the place cannot be made.
        """
        self._root = root
        super().__init__(root, topics)
        self._root.mkdir()

    @classmethod
    def of(
        cls, spark: SparkSession, address: str, topics: Mapping[str, str] = MappingProxyType({})
    ) -> HadoopLineages:
        """Those at an address; raises as `__init__`."""
        return cls(HadoopLocation.of(spark, address, LINEAGE_DIR.name), topics)

    def lock(self, lineage: LineageInfo) -> bool:
        """See the head of this module."""
        return True

    def _make(self, lineage: LineageInfo) -> None:
        (self._root / lineage.id / lineage.folder).mkdir()

    def _write(self, name: str, content: bytes) -> None:
        (self._root / name).write_bytes(content)

    def _add(self, name: str, content: bytes) -> None:
        (self._root / name).add_bytes(content)

    def _newest_first(self) -> list[str]:
        return [one.name for one in self._root.iterdir() if one.is_dir()]

    def _remove(self, name: str) -> None:
        (self._root / name).remove()

    def close(self) -> None:
        """Nothing is held."""
