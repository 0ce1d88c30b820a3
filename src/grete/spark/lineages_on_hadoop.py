"""Lineages on a file system of Hadoop's (HDFS, S3, ...), as Spark reaches it: by its classes and with its settings.

There is no lock of files there, and none is needed for what is promised. Spark writes what a batch will read before
it runs, and refuses to replace that file of another query's: a predecessor that still lives, as one that was paused,
can run no other batch of that number than its successor does; and what it commits is fenced. That refusal is the
file system's: HDFS renames in one step and replaces nothing. Where one does not (S3 without a checkpoint manager for
it), two drivers at once may leave a log that our checkpoints do not agree with, which the next start names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from grete.config.key_tables.job import LINEAGE_DIR
from grete.errors import ConfigError, GreteError, LineagesUnreachable
from grete.failpoints import failpoint
from grete.spark.lineage import LineageInfo
from grete.spark.lineage_files import Lineages

Answer = TypeVar("Answer")
_NOT_THERE = ("java.io.FileNotFoundException",)
_NOT_OURS = ("AccessControlException", "AccessDeniedException")
_NO_FOLDER = ("ParentNotDirectoryException", "FileAlreadyExistsException")
_NO_SUCH = ("UnsupportedFileSystemException", "ClassNotFoundException", "NoClassDefFoundError")


@dataclass(frozen=True, slots=True)
class HadoopLocation:
    """A folder or a file: see `grete.spark.source_log.Location`.

    Every call may raise `LineagesUnreachable` where there is no answer, and ConfigError where none helps.
    """

    files: Any
    """The JVM's file system."""
    jvm: Any
    address: str

    @classmethod
    def of(cls, spark: SparkSession, address: str) -> HadoopLocation:
        """The place with this address."""
        jvm: Any = spark._jvm
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(address)
        return cls(_answered(address, lambda: path.getFileSystem(configuration)), jvm, address)

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """The last part."""
        return self.address.rpartition("/")[2]

    def __truediv__(self, part: str) -> HadoopLocation:
        return HadoopLocation(self.files, self.jvm, f"{self.address}/{part}")

    @property
    def _path(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(self.address)

    def is_dir(self) -> bool:
        """See Location."""
        try:
            return bool(self._read(lambda: self.files.getFileStatus(self._path).isDirectory()))
        except FileNotFoundError:
            return False

    def iterdir(self) -> Iterator[HadoopLocation]:
        """See Location; the newest first."""
        found = list(self._read(lambda: self.files.listStatus(self._path)))
        for status in sorted(found, key=lambda one: one.getModificationTime(), reverse=True):
            yield self / str(status.getPath().getName())

    def read_bytes(self) -> bytes:
        """See Location."""

        def read() -> bytes:
            stream = self.files.open(self._path)
            try:
                return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self._read(read)

    def mkdir(self) -> None:
        """Make the folder, and those above it."""
        _answered(self.address, lambda: self.files.mkdirs(self._path))

    def remove(self) -> None:
        """Delete it with all that is in it; nothing where it is not there."""
        _answered(self.address, lambda: self.files.delete(self._path, True))

    def write_bytes(self, content: bytes) -> None:
        """Put the file in the place of another one in one step, where the file system has such. Durable on return."""
        beside = HadoopLocation(self.files, self.jvm, f"{self.address}.tmp")

        def write() -> None:
            stream = self.files.create(beside._path, True)
            try:
                stream.write(bytearray(content))
                stream.hsync()
            finally:
                stream.close()
            failpoint("lineage.described")
            context = self.jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self.files.getUri(), self.files.getConf()
            )
            context.rename(beside._path, self._path, self._replacing())

        _answered(self.address, write)

    def _replacing(self) -> Any:
        kind = getattr(self.jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self.jvm.java.lang.reflect.Array.newInstance(kind.OVERWRITE.getClass(), 1)
        self.jvm.java.lang.reflect.Array.set(options, 0, kind.OVERWRITE)
        return options

    def _read(self, call: Callable[[], Answer]) -> Answer:
        return _answered(self.address, call, may_lack=True)


class HadoopLineages(Lineages):
    """Lineages on a file system of Hadoop's."""

    def __init__(
        self, spark: SparkSession, address: str, topics: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """See Lineages.

        Raises:
            ConfigError, LineagesUnreachable: the place cannot be made.
        """
        self._root = HadoopLocation.of(spark, address)
        super().__init__(self._root, topics)
        self._root.mkdir()

    def lock(self, lineage: LineageInfo) -> bool:
        """See the head of this module."""
        return True

    def _make(self, lineage: LineageInfo) -> None:
        (self._root / lineage.id / "spark").mkdir()

    def _write(self, name: str, content: bytes) -> None:
        (self._root / name).write_bytes(content)

    def _newest_first(self) -> list[str]:
        return [one.name for one in self._root.iterdir() if one.is_dir()]

    def _remove(self, lineage_id: str) -> None:
        (self._root / lineage_id).remove()

    def close(self) -> None:
        """Nothing is held."""


def _answered(address: str, call: Callable[[], Answer], *, may_lack: bool = False) -> Answer:
    """The answer of the file system; with `may_lack` a FileNotFoundError where there is no such file."""
    try:
        return call()
    except Py4JJavaError as error:
        said = str(error.java_exception.toString())
        if may_lack and said.startswith(_NOT_THERE):
            raise FileNotFoundError(said) from error
        raise _problem(address, said) from error


def _problem(address: str, said: str) -> GreteError:
    """The error of an answer that is none, by the name of its class."""
    where = f"{LINEAGE_DIR.name}: {address}: {said[:1000]}"
    if any(name in said for name in _NOT_OURS):
        return ConfigError(
            f"{where}. Let the user of driver and executors write there, or name another place"
        )
    if any(name in said for name in _NO_FOLDER):
        return ConfigError(f"{where}. Name a folder, or a place where one can be made")
    if any(name in said for name in _NO_SUCH):
        return ConfigError(
            f"{where}. Bring its classes by spark.jars or spark.jars.packages, as hadoop-aws for s3a"
        )
    return LineagesUnreachable(where)
