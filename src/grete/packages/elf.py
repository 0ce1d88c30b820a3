"""Where a program of ELF looks for its libraries, made relative to itself.

An interpreter with a shared libpython names that library's folder by its path, which other machines lack. It is
overwritten in the string table with one that begins with `$ORIGIN`; the rest of the old string stays behind it, since
other names may be its ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grete.errors import PackageError

_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little endian: what Spark's executors run on."""
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def needed_libraries(path: Path) -> tuple[str, ...]:
    """The names of the libraries that a program is linked with.

    Raises:
        PackageError: it is no program for 64-bit Linux.
    """
    content = path.read_bytes()
    entries, strings = _dynamic(path, content)
    return tuple(_string(content, strings + value).decode() for tag, value in entries if tag == _NEEDED)


def look_beside(path: Path, place: str) -> None:
    """Let a program look for its libraries in `place`, which begins with `$ORIGIN`, its own folder.

    Raises:
        PackageError: it is no program for 64-bit Linux, or has no room for that.
    """
    content = bytearray(path.read_bytes())
    entries, strings = _dynamic(path, content)
    wanted = place.encode() + b"\0"
    offsets = [strings + value for tag, value in entries if tag in (_RPATH, _RUNPATH)]
    if not offsets or any(len(_string(content, offset)) + 1 < len(wanted) for offset in offsets):
        raise PackageError(
            f"{path.name} needs its shared libpython and has no room for the path to a copy of it; build with an "
            f"interpreter that is linked with its library, or moves: --python PATH (uv's do)"
        )
    for offset in offsets:
        content[offset : offset + len(wanted)] = wanted
    path.write_bytes(content)


def _dynamic(path: Path, content: bytes | bytearray) -> tuple[list[tuple[int, int]], int]:
    """The entries of its dynamic section, and where its strings begin."""
    if not content.startswith(_MAGIC):
        raise PackageError(
            f"{path} is no program for 64-bit Linux, where environments are built for executors"
        )
    try:
        segments = list(_segments(content))
        found = [segment for segment in segments if segment.kind == _DYNAMIC]
        entries = [entry for segment in found for entry in _entries(content, segment)]
        table = next((value for tag, value in entries if tag == _STRINGS), 0)
        strings = next(
            (
                segment.offset + table - segment.address
                for segment in segments
                if segment.kind == _LOAD and 0 <= table - segment.address < segment.size
            ),
            0,
        )
    except struct.error as error:
        raise PackageError(f"{path} is damaged: {error}") from error
    return entries, strings


def _segments(content: bytes | bytearray) -> Iterator[_Segment]:
    [start] = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for index in range(count):
        kind, _, offset, address, _, in_file = struct.unpack_from("<IIQQQQ", content, start + index * size)
        yield _Segment(kind, offset, address, in_file)


def _entries(content: bytes | bytearray, segment: _Segment) -> Iterator[tuple[int, int]]:
    for offset in range(segment.offset, segment.offset + segment.size, 16):
        tag, value = struct.unpack_from("<QQ", content, offset)
        if tag == 0:
            return
        yield tag, value


def _string(content: bytes | bytearray, offset: int) -> bytes:
    return bytes(content[offset : content.index(b"\0", offset)])
