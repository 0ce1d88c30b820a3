"""Is a package, as a folder or as an archive, what its manifest says? And do several fit together?

Nothing is unpacked: an archive's entries are read one by one, so that one which would write elsewhere writes nothing.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from grete.errors import PackageError
from grete.packages import api_list
from grete.packages.manifest import LARGEST, NAME, FileEntry, Manifest, PackageKind, decode, file_entry

_MOST_ENTRIES = 300_000
_MOST_BYTES = 16 << 30
_CACHE = "__pycache__"
_SHOWN = 20
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError, RecursionError)
"""`tarfile` takes numbers in an entry's headers as they are, and reads headers of headers by calling itself."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in a package. It is as it was built where there are no `problems`."""

    where: Path
    manifest: Manifest | None
    problems: tuple[str, ...]


def read_manifest(package: Path) -> Manifest:
    """The manifest of a package, as it is written there.

    Raises:
        PackageError: there is no package, or no manifest in it.
    """
    if package.is_dir():
        path = package / NAME
        if not path.is_file() or path.is_symlink():
            raise PackageError(f"{package} has no {NAME}; it was not built by `grete package build`")
        with path.open("rb") as file:
            return decode(file.read(LARGEST), str(package))
    with opened(package) as archive:
        for entry in _bounded(archive, package):
            if entry.name == NAME and entry.isreg():
                return decode(_content(archive, entry).read(LARGEST), str(package))
    raise PackageError(f"{package} has no {NAME}; it was not built by `grete package build`")


def verify(package: Path, *, digest: str | None = None, may_all_be_executable: bool = False) -> Verified:
    """Compare a package with its manifest, and with the digest that it should have.

    YARN makes each file executable that it unpacks (`may_all_be_executable`).

    Python's caches are no part of a package; a folder may have them, an archive may not.

    Raises:
        PackageError: there is no package, or it cannot be read.
    """
    try:
        manifest = read_manifest(package)
    except PackageError as error:
        if not package.exists():
            raise
        return Verified(package, None, (str(error),))
    problems: list[str] = []
    found: dict[str, FileEntry] = {}
    for name, what in _entries_of_folder(package) if package.is_dir() else _entries_of_archive(package):
        if isinstance(what, str):
            problems.append(f"{name}: {what}")
        elif name in found:
            problems.append(f"{name}: is there twice")
        else:
            found[name] = what
    problems += _differences(manifest, found, may_all_be_executable=may_all_be_executable)
    problems += _missing_places(manifest)
    if digest is not None and manifest.digest != digest.lower():
        problems.append(f"its digest is {manifest.digest}, not {digest}")
    return Verified(package, manifest, _shortened(problems))


def skew(packages: Sequence[Manifest]) -> tuple[str, ...]:
    """Why packages do not fit together: they were built by different versions of grete."""
    versions = {each.grete for each in packages}
    if len(versions) < 2:
        return ()
    named = ", ".join(f"{each.kind} {each.grete}" for each in packages)
    return (f"built by different versions of grete: {named}; build them again with one of them",)


def _differences(
    manifest: Manifest, found: dict[str, FileEntry], *, may_all_be_executable: bool
) -> Iterator[str]:
    for name, entry in manifest.files.items():
        there = found.get(name)
        if there is None:
            yield f"{name}: is missing"
        elif (there.sha256, there.bytes) != (entry.sha256, entry.bytes):
            yield f"{name}: its content has changed"
        elif entry.executable and not there.executable:
            yield f"{name}: can no longer be executed"
        elif there.executable and not entry.executable and not may_all_be_executable:
            yield f"{name}: has become executable"
    yield from (f"{name}: is not in the manifest" for name in found if name not in manifest.files)


def _missing_places(manifest: Manifest) -> Iterator[str]:
    needed = {
        PackageKind.API: (f"lib/{api_list.NAME}",),
        PackageKind.FRAMEWORK: ("bin/python", "bin/run-jc.sh"),
        PackageKind.APPLICATION: ("bin/python",),
    }[manifest.kind]
    yield from (
        f"{name}: is not in this {manifest.kind} package" for name in needed if name not in manifest.files
    )


def _shortened(problems: list[str]) -> tuple[str, ...]:
    if len(problems) <= _SHOWN:
        return tuple(problems)
    return (*problems[:_SHOWN], f"and {len(problems) - _SHOWN} more")


def _entries_of_folder(folder: Path) -> Iterator[tuple[str, FileEntry | str]]:
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if name != _CACHE or name in links]
        for file_name in (*files, *links):
            path = Path(place, file_name)
            name = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                yield name, _link(name, os.readlink(path))
            elif not stat.S_ISREG(mode):
                yield name, "is neither a file nor a folder"
            elif name != NAME:
                with path.open("rb") as file:
                    yield name, file_entry(file, executable=bool(mode & 0o100))


def _entries_of_archive(package: Path) -> Iterator[tuple[str, FileEntry | str]]:
    with opened(package) as archive:
        manifests = 0
        for entry in _bounded(archive, package):
            name = entry.name
            manifests += name == NAME
            if not _is_below(name):
                yield (
                    name,
                    "is outside of the folder that it is unpacked in, or begins with './', which Spark refuses",
                )
            elif entry.issym():
                yield name, _link(name, entry.linkname)
            elif entry.islnk():
                yield name, f"is a link to {entry.linkname}; packages have none"
            elif entry.isreg() and name != NAME:
                yield name, file_entry(_content(archive, entry), executable=bool(entry.mode & 0o100))
            elif not entry.isreg() and not entry.isdir():
                yield name, "is neither a file nor a folder"
            elif name == NAME and manifests > 1:
                yield name, "is there twice"


def _bounded(archive: tarfile.TarFile, package: Path) -> Iterator[tarfile.TarInfo]:
    """An archive's entries, as long as they are no more than a package has."""
    count, size = 0, 0
    for entry in archive:
        count, size = count + 1, size + entry.size
        if count > _MOST_ENTRIES or size > _MOST_BYTES:
            raise PackageError(
                f"{package} unpacks to more than {_MOST_ENTRIES:,} files or {_MOST_BYTES >> 30} GB"
            )
        yield entry


def _is_below(name: str) -> bool:
    """Is it a plain name below the top: relative, without `.` and `..`?"""
    return not name.startswith("/") and not {"", ".", ".."} & set(name.rstrip("/").split("/"))


def _link(name: str, target: str) -> str:
    """What is wrong with a link: any is, one that leaves the package above all."""
    parts: list[str] = [] if target.startswith("/") else list(PurePosixPath(name).parent.parts)
    for part in target.split("/"):
        if part == ".." and not parts:
            return f"is a link to {target}, outside of the package"
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if target.startswith("/"):
        return f"is a link to {target}, outside of the package"
    return f"is a link to {target}; packages have none"


@contextmanager
def opened(package: Path) -> Iterator[tarfile.TarFile]:
    """The archive of a package, whose damage is said in words, whenever it is met.

    Raises:
        PackageError: there is none, or what is read of it is damaged.
    """
    try:
        content = _Unpacked(package)
    except FileNotFoundError as error:
        raise PackageError(f"there is no package {package}") from error
    except (OSError, ValueError) as error:  # or a name that no file can have
        raise PackageError(f"{package} cannot be read: {error}") from error
    try:
        with content, tarfile.open(fileobj=content, mode="r:") as archive:
            yield archive
    except _DAMAGE as error:
        said = "headers of headers, too deep" if isinstance(error, RecursionError) else error
        raise PackageError(f"{package} is damaged, or no archive of a package: {said}") from error


class _Unpacked(gzip.GzipFile):
    """The content of a `.tgz`, of which no more is in memory than the largest manifest takes.

    `tarfile` reads an entry's long name at once, however long the entry says that it is.
    """

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= LARGEST:
            raise tarfile.ReadError("an entry has a name that is too long")
        with _of_the_archive():
            return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:  # reads what it skips
        with _of_the_archive():
            return super().seek(offset, whence)


@contextmanager
def _of_the_archive() -> Iterator[None]:
    """An error is of the archive, and not of what is done with its content."""
    try:
        yield
    except OSError as error:
        raise tarfile.ReadError(str(error)) from error


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> BinaryIO:
    return cast("BinaryIO", archive.extractfile(entry))
