"""Where snapshots of stores are: a folder that all machines see, or an object store.

Both are files of names below a place. A file is written whole, never changed, and read by its name; `files` says when
each was written, by the place's own clock, since machines may differ.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from grete.config.places import place_of, without_user
from grete.config.secrets import resolve_secrets
from grete.config.settings.azure import AzureAccount, AzureSettings
from grete.errors import ConfigError
from grete.private_files import private_directory, replace_file

if TYPE_CHECKING:
    from grete.azure.blob_folder import BlobFolder
    from grete.azure.storage import AzureStorage
    from grete.tasks.stores.web_hdfs import HdfsFolder

Folder: TypeAlias = "ArrowFolder | BlobFolder | HdfsFolder"

IN_AZURE, IN_HDFS = "abfs://", "webhdfs://"
_ANSWER_S, _ALL_S, _TRIES, _LET_BE_S = 10.0, 600.0, 2, 300.0
T = TypeVar("T")


class SnapshotPlace(ABC):
    """Files by their names. Safe to use from several threads."""

    written_at_once = 1
    """Files side by side: a disk that commits share is not filled with writes."""

    @abstractmethod
    def below(self, *names: str) -> SnapshotPlace:
        """The place of that name, and so on; it need not be there."""

    @abstractmethod
    def files(self) -> dict[str, float]:
        """The files here, and in seconds when each was written.

        Raises:
            OSError: the place does not answer.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: it is not there.
            OSError: the place does not answer.
        """

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Durable on return, and at every moment there whole or not at all.

        Raises:
            OSError: there is no room, or no right to, or the place does not answer.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; nothing where it is not there.

        Raises:
            OSError: no right to, or the place does not answer.
        """

    @abstractmethod
    def remove_all(self) -> None:
        """Remove everything at and below this place; nothing where there is none.

        Raises:
            OSError: the place does not answer.
        """


class FolderPlace(SnapshotPlace):
    """A folder of this machine, also one that others see."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def below(self, *names: str) -> FolderPlace:
        """See SnapshotPlace."""
        return FolderPlace(self._path.joinpath(*names))

    def files(self) -> dict[str, float]:
        """See SnapshotPlace."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self._path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_mtime
        return found

    def read(self, name: str) -> bytes:
        """See SnapshotPlace."""
        return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """See SnapshotPlace."""
        private_directory(self._path)
        replace_file(self._path / name, content, is_durable=True)

    def remove(self, name: str) -> None:
        """See SnapshotPlace."""
        (self._path / name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """See SnapshotPlace."""
        shutil.rmtree(self._path, ignore_errors=True)


class PatientCalls:
    """Calls to one object store that end in time; it is let be for a while when one did not.

    Arrow's clients wait for a server that takes a connection and says nothing for as long as it does: more than six
    minutes were seen. A task that begins asks once for each of its stores.
    """

    def __init__(self) -> None:
        self._away_until_s = float("-inf")

    def call(self, work: Callable[[], T], within_s: float | None = None) -> T:
        """What the work returns, in 10 s if nothing else is said. It may be done twice: nothing here minds.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: refused, or no answer in time.
        """
        if time.monotonic() < self._away_until_s:
            raise OSError("the object store did not answer a while ago, and is not asked again yet")
        patience_s = _ANSWER_S if within_s is None else within_s
        for _ in range(_TRIES):  # one connection may be dead, which stays with whoever waits for it
            with suppress(queue.Empty):
                return _answered(work, patience_s)
        self._away_until_s = time.monotonic() + _LET_BE_S
        raise TimeoutError(f"the object store has not answered within {_TRIES * patience_s:g} s")


def _answered(work: Callable[[], T], within_s: float) -> T:
    """What the work returns.

    Raises:
        OSError: what it raises, as such.
        queue.Empty: no answer in time.
    """
    answers = queue.SimpleQueue[T | Exception]()

    def answer() -> None:
        try:
            answers.put(work())
        except Exception as error:  # noqa: BLE001 - a thread begins here, and who waits for it raises it
            answers.put(error)

    threading.Thread(target=answer, name="grete-object-store", daemon=True).start()
    found = answers.get(timeout=within_s)
    if isinstance(found, OSError):
        raise found
    if isinstance(found, Exception):
        raise OSError(str(found)) from found
    return found


class ArrowFolder:
    """A prefix in a bucket, by Arrow's clients of object stores. As `grete.azure.blob_folder.BlobFolder`."""

    def __init__(self, system: Any, path: str) -> None:
        """`system` is a `pyarrow.fs.FileSystem`."""
        self._system = system
        self._path = path.rstrip("/")

    def below(self, *names: str) -> ArrowFolder:
        """See SnapshotPlace."""
        return ArrowFolder(self._system, "/".join((self._path, *names)))

    def files(self) -> dict[str, float]:
        """See SnapshotPlace."""
        return {one.base_name: one.mtime.timestamp() for one in self._found() if one.mtime is not None}

    def _found(self, *, is_deep: bool = False) -> list[Any]:
        from grete.arrow import file_systems

        chosen = file_systems().FileSelector(self._path, allow_not_found=True, recursive=is_deep)
        return [one for one in self._system.get_file_info(chosen) if one.is_file]

    def read(self, name: str) -> bytes:
        """See SnapshotPlace."""
        with self._system.open_input_stream(f"{self._path}/{name}") as file:
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """See SnapshotPlace. An object is there when its upload has ended."""
        with self._system.open_output_stream(f"{self._path}/{name}") as file:
            file.write(content)

    def remove(self, name: str) -> None:
        """See SnapshotPlace."""
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._path}/{name}")

    def remove_all(self) -> None:
        """See SnapshotPlace. Where that is refused, one by one: a gateway that keeps objects as files removes no
        folder before what is in it, and Google's client has no error of its own for a place that is not there.
        """
        try:
            self._system.delete_dir(self._path)
        except OSError:
            for one in self._found(is_deep=True):
                self._system.delete_file(one.path)


class ObjectPlace(SnapshotPlace):
    """A folder of an object store or of HDFS, asked with patience."""

    written_at_once = 4

    def __init__(self, folder: Folder, patience: PatientCalls, shown: str) -> None:
        """`shown` is for people and holds no key."""
        self._folder = folder
        self._patience = patience
        self._shown = shown.rstrip("/")

    def __str__(self) -> str:
        return self._shown

    def below(self, *names: str) -> ObjectPlace:
        """See SnapshotPlace."""
        return ObjectPlace(self._folder.below(*names), self._patience, "/".join((self._shown, *names)))

    def files(self) -> dict[str, float]:
        """See SnapshotPlace."""
        return self._patience.call(self._folder.files)

    def read(self, name: str) -> bytes:
        """See SnapshotPlace."""
        return self._patience.call(lambda: self._folder.read(name))

    def write(self, name: str, content: bytes) -> None:
        """See SnapshotPlace."""
        self._patience.call(lambda: self._folder.write(name, content))

    def remove(self, name: str) -> None:
        """See SnapshotPlace."""
        self._patience.call(lambda: self._folder.remove(name))

    def remove_all(self) -> None:
        """See SnapshotPlace. There may be thousands."""
        self._patience.call(self._folder.remove_all, _ALL_S)


def open_place(location: str, azure: AzureSettings) -> SnapshotPlace:
    """The folder, or the place in an object store, of that path or address; `azure` says how to get in there.

    Raises:
        ConfigError: a reference cannot be resolved, or the address is none that Arrow's clients know.
        OSError: the object store does not answer.
    """
    place = place_of(location)
    if isinstance(place, Path):
        return FolderPlace(place)
    if location.startswith(IN_AZURE):
        storage, patience = _in_azure(azure.account, os.getpid())
        folder: Folder = _blob_folder(storage, location.removeprefix(IN_AZURE))
    else:
        folder, patience = _by_address(resolve_secrets(location), os.getpid())
    return ObjectPlace(folder, patience, without_user(location))


def _blob_folder(storage: AzureStorage, place: str) -> BlobFolder:
    from grete.azure.blob_folder import BlobFolder

    container, _, path = place.strip("/").partition("/")
    return BlobFolder(storage, container, path)


@cache
def _in_azure(account: AzureAccount, process: int) -> tuple[AzureStorage, PatientCalls]:
    """The client of an account; one for each `process`, since connections do not come along where one is forked.

    It is Azure's own: Arrow's takes a lease of 15 s for each object that it removes, and waited for its end, again
    and again, on a busy machine.
    """
    from grete.azure.storage import AzureStorage

    return AzureStorage(account, timeout_s=_ANSWER_S), PatientCalls()


def _in_one_request(address: str) -> str:
    """S3's client makes three requests of each object otherwise, since it may grow without end."""
    if not address.startswith("s3://") or "allow_delayed_open=" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}allow_delayed_open=true"


@cache
def _by_address(address: str, process: int) -> tuple[Folder, PatientCalls]:
    """As `_in_azure`, with the path."""
    if address.startswith(IN_HDFS):
        from grete.tasks.stores.web_hdfs import HdfsFolder, WebHdfs

        return HdfsFolder(*WebHdfs.of(address)), PatientCalls()
    from grete.arrow import file_systems, pa

    try:
        system, path = file_systems().FileSystem.from_uri(_in_one_request(address))
    except (pa.ArrowException, ValueError) as error:
        # what Arrow says repeats the address, and with it a key
        raise ConfigError(
            f"job.snapshot.dir={without_user(address)}: Arrow's clients of object stores do not take this address "
            f"({type(error).__name__}); docs/availability.md has one of each kind"
        ) from None
    return ArrowFolder(system, path), PatientCalls()
