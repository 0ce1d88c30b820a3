"""Folders and files that are read, wherever they are: on a disk, or on a file system that Hadoop's classes reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from grete.config.settings import Settings
from grete.errors import MissingExtra

if TYPE_CHECKING:
    from grete.spark.lineage.hadoop_files import HadoopLocation

OnAsking = Callable[[str], None]
"""Called with an address before Spark is asked for it, which takes a second, and more where nothing answers."""


class FileStatus(Protocol):
    """A file, as its folder lists it."""

    @property
    def st_mtime(self) -> float:
        """When it was written, in seconds."""
        ...


class Location(Protocol):
    """A folder or a file that is read: a `Path` of this machine, or one of a file system of Hadoop's."""

    @property
    def name(self) -> str:
        """The last part."""
        ...

    def __truediv__(self, part: str, /) -> Self:
        """What is in it."""
        ...

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        ...

    def iterdir(self) -> Iterator[Self]:
        """What is in the folder."""
        ...

    def stat(self) -> FileStatus:
        """When the file was written.

        Raises:
            OSError: it is not there.
        """
        ...

    def read_bytes(self) -> bytes:
        """The file's content.

        Raises:
            OSError: it cannot be read.
        """
        ...


class WritableLocation(Location, Protocol):
    """One where files can be put."""

    def write_bytes(self, content: bytes, /) -> object:
        """Make the file, or put it in the place of another one.

        Raises:
            OSError: there is no room, or it may not be written.
        """
        ...


def open_location(
    place: Path | str, named_by: str, settings: Settings, on_asking: OnAsking
) -> WritableLocation:
    """A place for a process without Spark, as `grete.config.places.place_of` tells it; an address starts a JVM.

    `named_by` is the key or the option that has it. Spark's settings are those of the job.

    Raises:
        ConfigError, FilesUnreachable, JobError: see `HadoopLocation.reached`.
        MissingExtra: an address, without pyspark.
    """
    return place if isinstance(place, Path) else reach_address(place, named_by, settings, on_asking)


def reach_address(address: str, named_by: str, settings: Settings, on_asking: OnAsking) -> HadoopLocation:
    """As `open_location`, of an address, where more can be done than to read."""
    try:
        from grete.spark.lineage.hadoop_files import HadoopLocation
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "spark") from error
    on_asking(address)
    return HadoopLocation.reached(address, named_by, settings.spark.options)
