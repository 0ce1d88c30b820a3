"""Writes logs to a stream of the embedded system, and shortens it from its start, as a broker's retention does."""

from __future__ import annotations

from collections.abc import Sequence

from grete.clock import Clock
from grete.config.settings import Settings
from grete.model.streams import StreamSpec
from grete.systems.base import Message
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
        directory = Settings.of(target.config).system(target.stream.system).directory(target.home)
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
    return sum(_trim_partition(system, info.id, partition, before_ms) for partition in range(info.partitions))


def _trim_partition(system: LocalSystem, stream: int, partition: int, before_ms: int) -> int:
    last = _last_to_go(system, stream, partition, before_ms)
    if last is None:
        return 0
    with system.file.transaction() as connection:
        row = connection.execute(
            "SELECT oldest FROM partitions WHERE stream = ? AND partition = ?", (stream, partition)
        ).fetchone()
        oldest = int(row[0]) if row is not None else last + 1
        if oldest > last:
            return 0  # another process was faster
        connection.execute(
            "DELETE FROM segments WHERE stream = ? AND partition = ? AND last <= ?", (stream, partition, last)
        )
        connection.execute(
            "UPDATE partitions SET oldest = ? WHERE stream = ? AND partition = ?",
            (last + 1, stream, partition),
        )
    return last + 1 - oldest


def _last_to_go(system: LocalSystem, stream: int, partition: int, before_ms: int) -> int | None:
    from grete.systems.records import unpack  # Arrow, which looking at jobs does not need

    found: int | None = None
    for _ in range(_SEGMENTS_AT_ONCE):
        with system.file.reading() as connection:
            row = connection.execute(
                "SELECT last, data FROM segments WHERE stream = ? AND partition = ? AND first > ? "
                "ORDER BY first LIMIT 1",
                (stream, partition, -1 if found is None else found),
            ).fetchone()
        if row is None or max(unpack(row[1]).column(2).to_pylist()) >= before_ms:
            return found
        found = int(row[0])
    return found
