"""Segments as rows of the embedded system's file: appended, listed, read with proof, merged."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from grete.errors import LogCorrupted, StreamError
from grete.failpoints import failpoint
from grete.systems.commit_group import SegmentWrite, check_first
from grete.systems.local.stream_rows import StreamInfo

SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
  stream INTEGER NOT NULL, partition INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  count INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (stream, partition, first));
"""
_COLUMNS = "first, last, count, crc, length(data)"


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition in the file: the stream's row, and the partition's number."""

    stream: int
    partition: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment without its data: offsets first to last, of which `count` still have records."""

    first: int
    last: int
    count: int
    crc: int
    size: int


def append_in(connection: apsw.Connection, info: StreamInfo, segment: SegmentWrite) -> int:
    """Append a segment to its partition, in the caller's transaction; the partition's upcoming offset.

    Raises:
        StreamError: no such partition.
        LogCorrupted: it does not end at the segment's `first` offset.
    """
    row = connection.execute(
        "SELECT upcoming FROM partitions WHERE stream = ? AND partition = ?", (info.id, segment.partition)
    ).fetchone()
    if row is None:
        raise StreamError(f"{info.name} has partitions 0 to {info.partitions - 1}, not {segment.partition}")
    first, data = int(row[0]), segment.data
    check_first(segment, first)
    upcoming = first + segment.count
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            info.id,
            segment.partition,
            first,
            upcoming - 1,
            segment.count,
            zlib.crc32(data),
            data,
        ),
    )
    failpoint("commit.segment-written")
    connection.execute(
        "UPDATE partitions SET upcoming = ? WHERE stream = ? AND partition = ?",
        (upcoming, info.id, segment.partition),
    )
    return upcoming


def segments_from(
    connection: apsw.Connection, key: PartitionKey, offset: int, limit: int = -1
) -> list[Segment]:
    """The segments that begin at `offset` or later, in order; their data is not read."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM segments WHERE stream = ? AND partition = ? AND first >= ? "  # noqa: S608
        "ORDER BY first LIMIT ?",
        (key.stream, key.partition, offset, limit),
    )
    return [Segment(*row) for row in rows]


def data_of(connection: apsw.Connection, key: PartitionKey, segment: Segment) -> bytes | None:
    """The segment's data; None when it is not as it was listed, because another process has replaced it.

    Raises:
        LogCorrupted: it fails its checksum.
    """
    row = connection.execute(
        "SELECT data FROM segments WHERE stream = ? AND partition = ? AND first = ? AND last = ? AND crc = ?",
        (key.stream, key.partition, segment.first, segment.last, segment.crc),
    ).fetchone()
    if row is None:
        return None
    data = bytes(row[0])
    if zlib.crc32(data) != segment.crc:
        raise LogCorrupted(
            f"{connection.filename}: offsets {segment.first} to {segment.last} of partition {key.partition} of "
            f"stream {key.stream} fail their checksum"
        )
    return data


def replace_in(
    connection: apsw.Connection, key: PartitionKey, old: Sequence[Segment], count: int, data: bytes
) -> bool:
    """Put one segment of the same offsets for neighbours, in the caller's transaction; returns whether it did.

    It does not when one of them is not as it was listed.
    """
    first, last = old[0].first, old[-1].last
    there = connection.execute(
        "SELECT first, last, crc FROM segments WHERE stream = ? AND partition = ? AND first BETWEEN ? AND ? "
        "ORDER BY first",
        (key.stream, key.partition, first, last),
    ).fetchall()
    if there != [(segment.first, segment.last, segment.crc) for segment in old]:
        return False
    connection.execute(
        "DELETE FROM segments WHERE stream = ? AND partition = ? AND first BETWEEN ? AND ?",
        (key.stream, key.partition, first, last),
    )
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?)",
        (key.stream, key.partition, first, last, count, zlib.crc32(data), data),
    )
    return True


def trim_in(connection: apsw.Connection, key: PartitionKey, oldest: int) -> None:
    """Let the partition begin at `oldest`, in the caller's transaction; whole segments below it go."""
    connection.execute(
        "DELETE FROM segments WHERE stream = ? AND partition = ? AND last < ?",
        (key.stream, key.partition, oldest),
    )
    connection.execute(
        "UPDATE partitions SET oldest = max(oldest, ?) WHERE stream = ? AND partition = ?",
        (oldest, key.stream, key.partition),
    )
