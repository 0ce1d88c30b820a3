"""Rewrites segments of the embedded system: several as one, without the records that a compaction drops.

What may be dropped, and why that is safe at every point, stands in `local_compaction`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grete.arrow import pa
from grete.model.fence import Fence
from grete.sqlite_file import SqliteFile, check_fences
from grete.systems.columns import numbers
from grete.systems.local.compaction import compaction_in, remember_in
from grete.systems.local.segment_rows import PartitionKey, Segment, data_of, replace_in, segments_from
from grete.systems.records import join, offsets_of, sparse, unpack, without_offsets, write

SEGMENT_BYTES = 1 << 20
"""Segments are put together up to this size."""
ENOUGH = 64
"""So many segments are looked at, or merged, at one time."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """A compaction begins at `min_dirty_bytes` and remembers at most `max_keys` keys, about 200 bytes each. It goes
    through `segment_bytes` in one transaction, or through one segment.
    """

    min_dirty_bytes: int = 1 << 20
    segment_bytes: int = SEGMENT_BYTES
    max_keys: int = 500_000


@dataclass(frozen=True, slots=True)
class _Dropping:
    """The records that a compaction drops below its horizon: by the last offset of each key, and tombstones."""

    horizon: int
    last: Mapping[bytes, int]

    def living(self, first: int, batch: pa.RecordBatch) -> pa.Array:
        """Which records of a segment stay. A record without a key shadows none."""
        offset_of = self.last.get
        rows = zip(
            batch.column(0).to_pylist(),
            batch.column(1).is_null().to_pylist(),
            _offsets(first, batch),
            strict=True,
        )
        stays = [
            key is None or (not is_tombstone and offset_of(key, offset) <= offset)
            for key, is_tombstone, offset in rows
        ]
        return pa.array(stays, type=pa.bool_())


class Compactor:
    """One compaction of one partition."""

    def __init__(
        self, file: SqliteFile, key: PartitionKey, fences: Sequence[Fence], limits: CompactionLimits
    ) -> None:
        self._file = file
        self._key = key
        self._fences = fences
        self._limits = limits

    def run(self, before_ms: int) -> Iterator[bool]:
        """Compact what is older than `before_ms`, when it is enough; yields after each piece of work.

        Raises:
            Fenced: another incarnation has taken over; nothing more was changed.
        """
        with self._file.reading() as connection:
            clean_to = compaction_in(connection, self._key).clean_to
            listed = segments_from(connection, self._key, 0)
        clean = sum(segment.size for segment in listed if segment.last < clean_to)
        dirty = [segment for segment in listed if segment.last >= clean_to]
        if not self._is_enough(dirty, max(clean, self._limits.min_dirty_bytes), before_ms):
            return
        horizon, last = clean_to, dict[bytes, int]()
        for segment in dirty:
            batch = read_segment(self._file, self._key, segment)
            if batch is None or newest_ms(batch) > before_ms or len(last) >= self._limits.max_keys:
                break
            _note_last(last, segment.first, batch)
            horizon = segment.last + 1
            yield True
        yield from self._drop(listed[0].first, _Dropping(horizon, last))

    def _is_enough(self, dirty: Sequence[Segment], enough: int, before_ms: int) -> bool:
        """Whether so many bytes are old: the segment with which they come to `enough` is looked at, no other."""
        size = 0
        for segment in dirty:
            size += segment.size
            if size >= enough:
                batch = read_segment(self._file, self._key, segment)
                return batch is not None and newest_ms(batch) <= before_ms
        return False

    def _drop(self, position: int, dropping: _Dropping) -> Iterator[bool]:
        """Go through the segments from `position` on, which is 0, or where retention has got to."""
        while position < dropping.horizon:
            with self._file.reading() as connection:
                listed = segments_from(connection, self._key, position, ENOUGH)
            below = [segment for segment in listed if segment.last < dropping.horizon]
            group = _fitting(below, self._limits.segment_bytes)
            if not group or group[0].first != position:
                return  # another process is at work here
            if not rewrite(self._file, self._key, self._fences, group, dropping):
                return
            position = group[-1].last + 1
            yield True
        with self._file.transaction() as connection:
            check_fences(connection, self._fences)
            remember_in(connection, self._key, horizon=position, clean_to=position)


def rewrite(
    file: SqliteFile,
    key: PartitionKey,
    fences: Sequence[Fence],
    group: Sequence[Segment],
    dropping: _Dropping | None = None,
) -> bool:
    """Put one segment for neighbours, in one transaction; false when they were not as they were listed."""
    parts, dropped = [], False
    for segment in group:
        batch = read_segment(file, key, segment)
        if batch is None:
            return False
        batch = sparse(segment.first, batch)
        if dropping is not None:
            kept = batch.filter(dropping.living(segment.first, batch))
            dropped = dropped or kept.num_rows < batch.num_rows
            batch = kept
        parts.append(batch)
    if len(group) == 1 and not dropped:
        return True
    joined = join(parts)
    data, count = write(_dense(joined, group[-1].last - group[0].first + 1)), joined.num_rows
    with file.transaction() as connection:
        check_fences(connection, fences)
        if not replace_in(connection, key, group, count, data):
            return False
        if dropping is not None and dropped:
            remember_in(connection, key, horizon=dropping.horizon, dropped=True)
    return True


def _dense(batch: pa.RecordBatch, offsets: int) -> pa.RecordBatch:
    """Without the column of offsets when there is a record for each."""
    return without_offsets(batch) if batch.num_rows == offsets else batch


def read_segment(file: SqliteFile, key: PartitionKey, segment: Segment) -> pa.RecordBatch | None:
    """A segment's records; None when it is not as it was listed.

    Raises:
        LogCorrupted: it fails its checksum.
    """
    with file.reading() as connection:
        data = data_of(connection, key, segment)
    return None if data is None else unpack(data)


def newest_ms(batch: pa.RecordBatch) -> int:
    """The time of a segment's newest record; records need not be in the order of their times."""
    times = numbers(batch.column(2))
    return int(times.max()) if len(times) else 0


def _note_last(last: dict[bytes, int], first: int, batch: pa.RecordBatch) -> None:
    """Remember the offset of each key of a segment; segments are given in order."""
    for key, offset in zip(batch.column(0).to_pylist(), _offsets(first, batch), strict=True):
        if key is not None:
            last[key] = offset


def _offsets(first: int, batch: pa.RecordBatch) -> list[int] | range:
    offsets = offsets_of(batch)
    if offsets is None:
        return range(first, first + batch.num_rows)
    return offsets.to_pylist()  # type: ignore[no-any-return] # pyarrow has no type stubs


def _fitting(listed: Sequence[Segment], at_most: int) -> list[Segment]:
    """The first segment, and those after it that fit with it."""
    group: list[Segment] = []
    size = 0
    for segment in listed:
        if group and size + segment.size > at_most:
            break
        group.append(segment)
        size += segment.size
    return group
