"""How many bytes offsets of a partition take, by the lengths of its segments; no record is read."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from grete.systems.admin import Range
from grete.systems.local.segment_rows import PartitionKey


def size_in(connection: apsw.Connection, key: PartitionKey, offsets: Range) -> int:
    """About how many bytes the range takes: of a segment that it has a part of, as large a part."""
    return sum(size for _, _, size in _parts(connection, key, offsets))


def end_in(connection: apsw.Connection, key: PartitionKey, offsets: Range, size: int) -> int:
    """Where the range has to end to take about `size` bytes: behind one offset at least, and not behind its end."""
    left = size
    for first, end, part in _parts(connection, key, offsets):
        if part > left:
            return max(offsets[0] + 1, first + (end - first) * left // part)
        left -= part
    return offsets[1]


def _parts(connection: apsw.Connection, key: PartitionKey, offsets: Range) -> Iterator[tuple[int, int, int]]:
    """(first, end, bytes) of what the range has of each segment, in order."""
    start, until = offsets
    rows = connection.execute(
        "SELECT first, last, length(data) FROM segments WHERE stream = ?1 AND partition = ?2 AND first < ?4 "
        "AND first >= coalesce("
        "(SELECT max(first) FROM segments WHERE stream = ?1 AND partition = ?2 AND first <= ?3), 0) ORDER BY first",
        (key.stream, key.partition, start, until),
    )
    for first, last, size in rows:
        low, high = max(first, start), min(last + 1, until)
        if low < high:
            yield low, high, size * (high - low) // (last + 1 - first)
