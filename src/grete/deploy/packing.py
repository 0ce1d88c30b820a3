"""A folder as an archive that Spark and YARN unpack, named by its content."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from grete.errors import ConfigError
from grete.private_files import private_opener

_LEFT_OUT = {"__pycache__", ".git", ".venv", ".grete", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
_LARGEST = 512 * 1024 * 1024


def pack(folder: Path, into: Path) -> Path:
    """Write the files of a folder into an archive in `into`; the same files give the same name and bytes.

    Entries have no `./` in front, which Spark refuses, and links stay links.

    Raises:
        ConfigError: it is no folder, or holds more than an application does.
    """
    if not folder.is_dir():
        raise ConfigError(f"cannot pack {folder}: there is no such folder; check job.application.path")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _files(folder):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_without_owner)
            if plain.tell() > _LARGEST:
                raise ConfigError(
                    f"{folder} holds more than {_LARGEST >> 20} MB: job.application.path is a folder of modules; "
                    "keep data elsewhere"
                )
    packed = gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)
    archive_path = into / f"application-{hashlib.sha256(packed).hexdigest()[:16]}.tgz"
    unfinished = archive_path.with_suffix(f".{os.getpid()}")
    with open(unfinished, "wb", opener=private_opener) as file:
        file.write(packed)
    unfinished.rename(archive_path)
    return archive_path


def _files(folder: Path) -> Iterator[Path]:
    """Folders before what is in them, by name."""
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT:
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
