"""Reading a range of a partition of the embedded system, segment by segment, with proof that nothing is missing."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from grete.errors import GreteError, LogCorrupted, OffsetOutOfRange, OffsetsRemoved
from grete.sqlite_file import SqliteFile
from grete.systems.local.stream_rows import StreamInfo, held_in

if TYPE_CHECKING:
    from grete.arrow import pa


_BYTES_AT_ONCE = 1 << 20


def read_range(
    file: SqliteFile, info: StreamInfo, partition: int, start: int, end: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(offset of the first row, record batch) for start <= offset < end; batches without an `offset` column
    have consecutive offsets, others carry them. One segment is in memory at a time, or some small ones.

    Raises:
        OffsetOutOfRange: `start` is below the oldest offset or above the upcoming one.
        LogCorrupted: a segment fails its checksum.
    """
    from grete.systems.records import unpack

    oldest, upcoming = _held(file, info, partition)
    if not oldest <= start <= upcoming:
        raise _not_there(info.name, partition, start, oldest, upcoming)
    position, end = start, upcoming if end is None else min(end, upcoming)
    while position < end:
        rows = _segments(file, info, partition, position, end)
        if not rows:
            raise _gone(file, info, partition, position)
        for first, last, crc, data in rows:
            if first > position:
                raise _gone(file, info, partition, position)
            if zlib.crc32(data) != crc:
                raise LogCorrupted(
                    f"{file.path}: {info.name} partition {partition}, offsets {first} to {last} fail their checksum"
                )
            yield _cut(unpack(data), first, position, end)
            position = last + 1


def _segments(
    file: SqliteFile, info: StreamInfo, partition: int, start: int, end: int
) -> list[tuple[int, int, int, bytes]]:
    """The segments from the one with `start` on, about a megabyte of them: small ones are not worth a query each."""
    found, size = [], 0
    with file.reading() as connection:
        rows = connection.execute(
            "SELECT first, last, crc, data FROM segments WHERE stream = ? AND partition = ? AND last >= ? "
            "AND first < ? ORDER BY first",
            (info.id, partition, start, end),
        )
        for first, last, crc, data in rows:
            found.append((first, last, crc, data))
            size += len(data)
            if size >= _BYTES_AT_ONCE:
                break
    return found


def _held(file: SqliteFile, info: StreamInfo, partition: int) -> tuple[int, int]:
    with file.reading() as connection:
        return held_in(connection, info, partition)


def _gone(file: SqliteFile, info: StreamInfo, partition: int, position: int) -> GreteError:
    oldest, upcoming = _held(file, info, partition)
    if position < oldest:
        return _not_there(info.name, partition, position, oldest, upcoming)
    return LogCorrupted(
        f"{file.path}: {info.name} partition {partition}, offset {position} is missing; restore the file "
        f"from a copy"
    )


def _not_there(stream: str, partition: int, offset: int, oldest: int, upcoming: int) -> OffsetOutOfRange:
    kind = OffsetsRemoved if offset < oldest else OffsetOutOfRange
    return kind(
        f"{stream} partition {partition}: offset {offset} is not there, the stream holds {oldest} to {upcoming - 1}"
    )


def _cut(batch: pa.RecordBatch, first: int, start: int, end: int) -> tuple[int, pa.RecordBatch]:
    """The rows of a segment with start <= offset < end, and the first one's offset."""
    if "offset" in batch.schema.names:
        from grete.systems.columns import numbers  # Arrow, which looking at jobs does not need

        offsets = numbers(batch.column("offset"))
        low, high = offsets.searchsorted([start, end])
        return start, batch.slice(int(low), int(high - low))
    low = max(0, start - first)
    return first + low, batch.slice(low, max(0, min(batch.num_rows, end - first) - low))
