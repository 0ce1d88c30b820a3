"""Writes logs to a stream of the embedded system, and shortens it from its start, as a broker's retention does."""

from __future__ import annotations

from collections.abc import Sequence

from grete.clock import Clock
from grete.model.streams import StreamSpec
from grete.sqlite_file import SqliteFile
from grete.systems.base import Message
from grete.systems.local.segment_rows import PartitionKey, segments_from, trim_in
from grete.systems.local.stream_rows import StreamInfo, held_in
from grete.systems.local.system import LocalSystem
from grete.systems.log_sink import LogStream

_SEGMENTS_AT_ONCE = 1_000
"""Looked at in one call at most, so that a first call after years does not take minutes."""
_TRIM_EVERY_S = 3600.0


class StreamSink:
    """Writes to a stream of an embedded system; creates it when it is not there, and keeps it short."""

    def __init__(self, target: LogStream, clock: Clock) -> None:
        self._target = target
        self._stream = target.stream.stream
        self._clock = clock
        directory = target.settings.system(target.stream.system).directory(target.home)
        self._system = LocalSystem(directory, self._clock)
        self._system.ensure_stream(StreamSpec(self._stream, target.partitions))
        self._trim_at_s = 0.0

    def write(self, records: Sequence[Message]) -> None:
        """See LogSink."""
        self._system.append(self._stream, records)
        now_s = self._clock.monotonic_s()
        if self._target.retention_ms >= 0 and now_s >= self._trim_at_s:
            trim(self._system, self._stream, self._clock.wall_ms() - self._target.retention_ms)
            self._trim_at_s = now_s + _TRIM_EVERY_S

    def close(self) -> None:
        """See LogSink."""
        self._system.close()


def trim(system: LocalSystem, stream: str, before_ms: int) -> int:
    """Drop from the head of each partition what is older than `before_ms`; returns how many offsets went.

    Whole segments go, each when all of its records are older; the first younger one ends it. Offsets are never used
    again. A reader that stood on what went gets OffsetOutOfRange with its next read.

    Raises:
        StreamNotFound: no such stream.
        ValueError: the stream is compacted: what is old there may be the only record of its key.
    """
    info = system.stream(stream)
    if info.compacted:
        raise ValueError(f"{stream} is compacted; its records stand for their keys, however old they are")
    return sum(_trim_partition(system, info, partition, before_ms) for partition in range(info.partitions))


def _trim_partition(system: LocalSystem, info: StreamInfo, partition: int, before_ms: int) -> int:
    key = PartitionKey(info.id, partition)
    end = _end_of_old(system.file, key, before_ms)
    with system.file.transaction() as connection:
        oldest, _ = held_in(connection, info, partition)
        trim_in(connection, key, end)
    return max(0, end - oldest)


def _end_of_old(file: SqliteFile, key: PartitionKey, before_ms: int) -> int:
    """The offset after the last segment that may go, 0 when none may."""
    from grete.systems.local.compactor import (  # Arrow, which looking at jobs does not need
        newest_ms,
        read_segment,
    )

    with file.reading() as connection:
        listed = segments_from(connection, key, 0, _SEGMENTS_AT_ONCE)
    end = 0
    for segment in listed:
        batch = read_segment(file, key, segment)
        if batch is None or newest_ms(batch) >= before_ms:
            break
        end = segment.last + 1
    return end
