"""Folders and files on a file system of Hadoop's (HDFS, S3, ...), as Spark reaches it: its classes, its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from grete.errors import ConfigError, FilesUnreachable, GreteError
from grete.failpoints import failpoint
from grete.spark.jvm import hadoop_configuration, jvm_of
from grete.spark.session.driver import reach_hadoop
from grete.text_logs import shortened

Answer = TypeVar("Answer")
_ANSWERS_WITHIN_S = 60.0
"""The client of HDFS tries a host that never answers for a quarter of an hour."""
_NOT_THERE = ("java.io.FileNotFoundException",)
_IN_VAIN = {
    ("AccessControlException", "AccessDeniedException"): (
        "Let the user of Spark's processes in, or name another place"
    ),
    ("ParentNotDirectoryException", "FileAlreadyExistsException"): (
        "Name a folder, or a place where one can be made"
    ),
    ("UnsupportedFileSystemException", "ClassNotFoundException", "NoClassDefFoundError"): (
        "Bring its classes by spark.jars or spark.jars.packages, as hadoop-aws for s3a"
    ),
    ("URISyntaxException", "Incomplete HDFS URI", "port out of range", "Wrong FS"): (
        "Write scheme://host/folder; the host may be left out where HADOOP_CONF_DIR names the folder of a "
        "core-site.xml that has it"
    ),
}
"""By what Java says: why waiting is in vain, as the way out."""
_IF_ABSENT = "fs.option.create.conditional.overwrite"
"""Hadoop's name, as an option and as a capability, for making a file in one step where there is none."""
_IS_THERE = ("RemoteFileChangedException", "FileAlreadyExistsException")
_UNREACHED = (
    "See that it runs and can be reached from here, and that HADOOP_CONF_DIR names the folder of its settings where "
    "it has some"
)


@dataclass(frozen=True, slots=True)
class HadoopStatus:
    """See `grete.spark.lineage.location.FileStatus`."""

    st_mtime: float


@dataclass(frozen=True, slots=True)
class HadoopFile:
    """A file as a listing has it."""

    uri: str
    size: int
    modified_ms: int

    @property
    def is_hidden(self) -> bool:
        """Whether Spark's readers leave it out, as they do where a name begins so."""
        return self.uri.rpartition("/")[2].startswith(("_", "."))


@dataclass(frozen=True, slots=True)
class HadoopLocation:
    """A folder or a file: see `grete.spark.lineage.location.Location`.

    Every call may raise FilesUnreachable where there is no answer, and ConfigError where waiting for one is in vain.
    """

    files: Any
    """The JVM's file system."""
    jvm: Any
    address: str
    named_by: str
    """The key or the option that has the address."""

    @classmethod
    def of(cls, spark: SparkSession, address: str, named_by: str) -> HadoopLocation:
        """The place with this address."""
        return cls._of(jvm_of(spark), hadoop_configuration(spark.sparkContext), address, named_by)

    @classmethod
    def reached(cls, address: str, named_by: str, options: Mapping[str, str]) -> HadoopLocation:
        """The place with this address in a process without a session; its file system has answered.

        Starts a JVM with `options`, those of `spark.*`: see `grete.spark.session.driver.reach_hadoop`.

        Raises:
            ConfigError, JobError: see there.
            ConfigError, FilesUnreachable: as every call; or there was no answer within a minute.
        """
        jvm, configuration = reach_hadoop(options)

        def ask() -> HadoopLocation:
            place = cls._of(jvm, configuration, address, named_by)
            place.is_dir()
            return place

        try:
            return _asked(ask).result(_ANSWERS_WITHIN_S)
        except TimeoutError as error:
            said = f"no answer within {_ANSWERS_WITHIN_S:.0f} s"
            raise _problem(f"{named_by}: {address}", said) from error

    @classmethod
    def _of(cls, jvm: Any, configuration: Any, address: str, named_by: str) -> HadoopLocation:
        def files() -> Any:
            return jvm.org.apache.hadoop.fs.Path(address).getFileSystem(configuration)

        return cls(_answered(f"{named_by}: {address}", files), jvm, address, named_by)

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """The last part."""
        return self.address.rpartition("/")[2]

    def __truediv__(self, part: str) -> HadoopLocation:
        return replace(self, address=f"{self.address}/{part}")

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

    def files_below(self) -> list[HadoopFile]:
        """The files in the folder and in all below it.

        Raises:
            FileNotFoundError: there is no such folder.
        """

        def listed() -> list[HadoopFile]:
            found, files = [], self.files.listFiles(self._path, True)
            while files.hasNext():
                one = files.next()
                uri = str(one.getPath().toUri())
                found.append(HadoopFile(uri, int(one.getLen()), int(one.getModificationTime())))
            return found

        return self._read(listed)

    def stat(self) -> HadoopStatus:
        """See Location."""
        return self._read(
            lambda: HadoopStatus(self.files.getFileStatus(self._path).getModificationTime() / 1000)
        )

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
        self._done(lambda: self.files.mkdirs(self._path))

    def remove(self) -> None:
        """Delete it with all that is in it; nothing where it is not there."""
        self._done(lambda: self.files.delete(self._path, True))

    def write_bytes(self, content: bytes) -> None:
        """Put the file in the place of another one in one step, where the file system has such. Durable on return."""
        self._done(lambda: self._renamed(content, "OVERWRITE"))

    def add_bytes(self, content: bytes) -> None:
        """As `write_bytes`, where there is no such file; one that is there stays, as Spark does it with its logs."""

        def add() -> None:
            try:
                self._renamed(content, "NONE")
            except (Py4JJavaError, PySparkException) as error:
                if not any(sign in str(error) for sign in _IS_THERE):
                    raise

        self._done(add)

    def _renamed(self, content: bytes, how: str) -> None:
        beside = replace(self, address=f"{self.address}.tmp")
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
        kind = getattr(self.jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self.jvm.java.lang.reflect.Array.newInstance(kind.NONE.getClass(), 1)
        self.jvm.java.lang.reflect.Array.set(options, 0, getattr(kind, how))
        context.rename(beside._path, self._path, options)

    def creates_if_absent(self) -> bool:
        """Whether `create_bytes` works here, as it does in S3 by hadoop-aws 3.4.2 and newer."""
        return self._read(lambda: bool(self.files.hasPathCapability(self._path, _IF_ABSENT)))

    def create_bytes(self, content: bytes) -> bool:
        """Make the file in one step where there is none; False where there is one. Durable on return."""

        def create() -> bool:
            try:
                stream = (
                    self.files.createFile(self._path)
                    .overwrite(False)
                    .recursive()
                    .must(_IF_ABSENT, True)
                    .build()
                )
                stream.write(bytearray(content))
                stream.close()
            except (Py4JJavaError, PySparkException) as error:
                if any(sign in str(error) for sign in _IS_THERE):
                    return False
                raise
            return True

        return _answered(f"{self.named_by}: {self.address}", create)

    def _read(self, call: Callable[[], Answer]) -> Answer:
        return _answered(f"{self.named_by}: {self.address}", call, may_lack=True)

    def _done(self, call: Callable[[], object]) -> None:
        _answered(f"{self.named_by}: {self.address}", call)


def _asked(ask: Callable[[], Answer]) -> Future[Answer]:
    """The answer to come. A thread that waits for it keeps no process from its end."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except Exception as error:  # noqa: BLE001 - a thread begins here, and who waits raises it
            future.set_exception(error)

    threading.Thread(target=run, name="grete-hadoop", daemon=True).start()
    return future


def _answered(where: str, call: Callable[[], Answer], *, may_lack: bool = False) -> Answer:
    """The answer of the file system; with `may_lack` a FileNotFoundError where there is no such file."""
    try:
        return call()
    except Py4JJavaError as error:
        said = str(error.java_exception.toString())
        if may_lack and said.startswith(_NOT_THERE):
            raise FileNotFoundError(said) from error
        raise _problem(where, said) from error
    except PySparkException as error:  # what some classes of Java's become where there has been a session
        raise _problem(where, str(error)) from error


def _problem(where: str, said: str) -> GreteError:
    """The error of an answer that is none, by what it says."""
    for signs, way_out in _IN_VAIN.items():
        if any(sign in said for sign in signs):
            return ConfigError(f"{where}: {shortened(said, 1000)}. {way_out}")
    return FilesUnreachable(f"{where}: {shortened(said, 1000)}. {_UNREACHED}")
