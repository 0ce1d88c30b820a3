"""A folder as an archive that executors unpack: named by its content, so that equal folders are one archive.

Hadoop's and Spark's own unpacking is right for `.tar.gz` and `.tgz` alone: of a plain `.tar` it loses links, and it
refuses entries that begin with `./`. Times, owners and the order of a folder are left out, so that two machines make
the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grete.errors import ConfigError
from grete.private_files import private_directory

_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
_LARGEST = 512 << 20
_BLOCK = 1 << 20
_KEPT = 3


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive on this machine. `name` is what executors unpack it as; it holds the hash of the content."""

    path: Path
    name: str
    digest: str


def pack(folder: Path, into: Path, *, kind: str = "application", largest: int = _LARGEST) -> Archive:
    """The archive of a folder's files, in the folder `into`; the one that is there already, if the content is the
    same.

    Hidden files, `__pycache__` and links to folders are left out, links to files of the folder are their content.
    Durable only as far as it can be made again.

    Raises:
        ConfigError: it is not there, cannot be read, is larger than `largest` bytes, or has a link that leaves it.
    """
    digest, total = hashlib.sha256(), 0
    try:
        files = list(files_of(folder))
        for name, path in files:
            content = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    content.update(block)
                    total += len(block)
                    if total > largest:
                        raise ConfigError(_too_large(folder, largest))
            digest.update(f"{len(name)}:{name}:{_mode(path):o}:".encode() + content.digest())
        known = f"grete-{kind}-{digest.hexdigest()[:16]}"
        archive = Archive(into / f"{known}.tgz", known, digest.hexdigest())
        if archive.path.is_file():
            os.utime(archive.path)
        else:
            private_directory(into)
            write_archive(archive.path, files)
        prune(into, f"grete-{kind}-*.tgz")
    except OSError as error:
        raise ConfigError(
            f"job.application.path: {folder} cannot be packed for executors: {error}"
        ) from error
    return archive


def prune(into: Path, pattern: str) -> None:
    """Delete archives of earlier contents; those used last stay, which another container may be handing out still."""
    for old in sorted(into.glob(pattern), key=lambda path: path.stat().st_mtime_ns, reverse=True)[_KEPT:]:
        old.unlink(missing_ok=True)


def _too_large(folder: Path, largest: int) -> str:
    return (
        f"job.application.path: {folder} has more than {largest >> 20} MB, which every executor would get: keep the "
        f"application's modules in a folder of their own, and data in streams or on a shared file system"
    )


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each file of an application's folder with its name in an archive, in the order of names.

    Raises:
        ConfigError: the folder is not there, or has a link that leaves it.
    """
    if not folder.is_dir():
        raise ConfigError(f"job.application.path: there is no folder {folder}")
    top = folder.resolve()
    found = []
    for place, folders, files in os.walk(top):
        folders[:] = [name for name in folders if _is_taken(name) and not Path(place, name).is_symlink()]
        found += [Path(place, name) for name in files if _is_taken(name)]
    for path in sorted(found):
        if path.is_symlink() and not path.resolve().is_relative_to(top):
            raise ConfigError(
                f"job.application.path: {path} is a link to {path.resolve()}, which is outside of the folder that "
                f"executors get; copy the file"
            )
        if path.is_file():
            yield path.relative_to(top).as_posix(), path


def _is_taken(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT


def _mode(path: Path) -> int:
    return 0o755 if os.access(path, os.X_OK) else 0o644


def write_archive(path: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Write files under their names into a `.tgz`, whose bytes depend on names, contents and modes alone."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with (
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in files:
            content = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), _mode(file)
            archive.addfile(entry, io.BytesIO(content))
    temporary.replace(path)
