"""What is in a package: its kind, versions, and each file with its hash, as `manifest.json` at its top.

The digest is a hash over names, modes and contents, so equal packages have one digest on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from grete.errors import PackageError

NAME = "manifest.json"
LARGEST = 64 << 20
"""Bytes of a manifest: 300,000 files and more."""
_FORMAT = 1
_BLOCK = 1 << 20


class PackageKind(StrEnum):
    """Which of the three environments, in the order in which modules are looked up in the framework's process."""

    API = "api"
    FRAMEWORK = "framework"
    APPLICATION = "application"

    @property
    def folder(self) -> str:
        """Its folder's fixed name, Samza's."""
        return _FOLDERS[self]


_FOLDERS = {
    PackageKind.API: "__samzaFrameworkApi",
    PackageKind.FRAMEWORK: "__samzaFrameworkInfrastructure",
    PackageKind.APPLICATION: "__package",
}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a package."""

    sha256: str
    bytes: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """A package's content. `python`, `platform` and `libc` are empty for the API, which runs in any interpreter.

    `requirements` are the packages in it with their versions, `lock` is the SHA-256 of the file they were locked in.
    """

    kind: PackageKind
    grete: str
    python: str
    platform: str
    libc: str
    lock: str
    requirements: Mapping[str, str]
    files: Mapping[str, FileEntry]

    @property
    def digest(self) -> str:
        """The hash of its files, without this manifest."""
        digest = hashlib.sha256()
        for name, entry in sorted(self.files.items()):
            digest.update(f"{len(name)}:{name}:{entry.executable:d}:{entry.sha256}\n".encode())
        return digest.hexdigest()

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(entry.bytes for entry in self.files.values())


def is_package(folder: Path) -> bool:
    """Does a folder say that it is a package?"""
    return (folder / NAME).is_file()


def file_entry(file: BinaryIO, *, executable: bool) -> FileEntry:
    """The entry of a file that is read to its end."""
    digest, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        size += len(block)
    return FileEntry(digest.hexdigest(), size, executable)


def files_of(folder: Path, names: Iterable[str]) -> dict[str, FileEntry]:
    """Entries of a folder's files."""
    found = {}
    for name in sorted(names):
        path = folder / name
        with path.open("rb") as file:
            found[name] = file_entry(file, executable=bool(path.stat().st_mode & 0o100))
    return found


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON, the same bytes for the same package."""
    document = {"format": _FORMAT, "digest": manifest.digest, **asdict(manifest)}
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def decode(content: bytes, where: str) -> Manifest:
    """The manifest in a file's bytes.

    Raises:
        PackageError: it is no manifest, or of a later format.
    """
    try:
        document = json.loads(content)
        # half a character can be neither hashed nor printed
        json.dumps(document, ensure_ascii=False).encode()
        if document["format"] != _FORMAT:
            raise PackageError(
                f"{where}: its manifest has format {document['format']!r}, this grete reads {_FORMAT}; "
                f"use the version that built it"
            )
        texts = {key: str(document[key]) for key in ("grete", "python", "platform", "libc", "lock")}
        return Manifest(
            kind=PackageKind(document["kind"]),
            requirements={str(name): str(version) for name, version in document["requirements"].items()},
            files={
                str(name): FileEntry(str(each["sha256"]), int(each["bytes"]), bool(each["executable"]))
                for name, each in document["files"].items()
            },
            **texts,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise PackageError(
            f"{where}: {NAME} is not what `grete package build` writes: {error!r}"[:500]
        ) from error
