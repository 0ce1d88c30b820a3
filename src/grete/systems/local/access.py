"""The embedded system as an executor needs it: partition counts, packing, and changelogs to restore from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grete.clock import Clock, SystemClock
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.systems.base import SystemContext
from grete.systems.local.system import LocalSystem
from grete.systems.partitioner import Partitioner, partition_of
from grete.systems.records import pack, unpack_changes, write

if TYPE_CHECKING:
    import pyarrow as pa


_LARGEST = 1 << 29
"""SQLite takes values of up to 1 GB, and a segment holds several records."""


def open_local_access(context: SystemContext) -> LocalAccess:
    """The embedded system of a configuration."""
    directory = Settings.of(context.config).system(context.name).directory(context.home)
    return LocalAccess(str(directory), context.clock)


class LocalAccess:
    """See Access."""

    def __init__(self, directory: str, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._system = LocalSystem(Path(directory), self._clock)
        self._counts: dict[str, int] = {}

    def partition_count(self, stream: str) -> int:
        """How many partitions the stream has; remembered, since partitions are only ever added."""
        count = self._counts.get(stream)
        if count is None:
            count = self._counts[stream] = self._system.partition_count(stream)
        return count

    def partitioner(self, stream: SystemStream) -> Partitioner:
        """See Access: Kafka's own."""
        return partition_of

    def largest_record(self, stream: str) -> int:
        """See Access."""
        return _LARGEST

    def pack(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> bytes:
        """Records as the commit wants them."""
        return pack(keys, values, timestamps_ms)

    def write(self, records: pa.RecordBatch) -> bytes:
        """Records that are columns already, as the commit wants them."""
        return write(records)

    def unpack(self, data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """(key, value) of packed changelog records."""
        return unpack_changes(data)

    def read(self, stream: str, partition: int, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See LocalSystem.read."""
        return self._system.read(stream, partition, start, end)

    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """See LocalSystem.changes. Compaction has left word of how far it got, so the copy's age does not matter."""
        return self._system.changes(stream, partition, start, end)

    def now_ms(self) -> int:
        """Wall time, for record timestamps."""
        return self._clock.wall_ms()

    def close(self) -> None:
        """Close the file."""
        self._system.close()
