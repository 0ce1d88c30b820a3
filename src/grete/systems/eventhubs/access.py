"""Event Hubs as an executor uses it: ranges of hubs, and the job's changelogs from the system that has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from grete.config.key_tables import eventhubs as keys
from grete.model.ids import SystemStream
from grete.systems.access import Access, Change
from grete.systems.base import SystemContext
from grete.systems.eventhubs.hash import hub_partitioner
from grete.systems.eventhubs.hubs import Hubs
from grete.systems.eventhubs.system import Routes, other_name
from grete.systems.factory import open_access
from grete.systems.partitioner import Partitioner

if TYPE_CHECKING:
    import pyarrow as pa


def open_eventhubs_access(context: SystemContext) -> EventHubsAccess:
    """The hubs of a configuration, and the system beside them.

    Raises:
        ConfigError: `task.checkpoint.system` names none, or the other system misses a setting.
    """
    other = open_access(context.config, other_name(context), context.home, context.clock)
    return EventHubsAccess(context, other)


class EventHubsAccess:
    """See Access."""

    def __init__(self, context: SystemContext, other: Access) -> None:
        self._config: Mapping[str, str] = context.config
        self._name = context.name
        self._other = other
        self._routes = Routes(context.config, context.name)
        self._hubs = Hubs(context.config, context.name, context.clock)
        self._counts: dict[str, int] = {}

    def partition_count(self, stream: str) -> int:
        """See Access."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.partition_count(beside)
        if stream not in self._counts:
            self._counts[stream] = self._hubs.of(stream).info().partitions
        return self._counts[stream]

    def partitioner(self, stream: SystemStream) -> Partitioner:
        """See Access: what `partition.method` says; of streams beside the hubs what their system says."""
        if stream.system != self._name:
            return self._other.partitioner(stream)
        return hub_partitioner(self._config, stream)

    def largest_record(self, stream: str) -> int:
        """See Access."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.largest_record(beside)
        limit = int(self._config.get(keys.LARGEST.named(self._name), keys.LARGEST.default or "0"))
        return limit if limit > 0 else 1 << 20

    def pack(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> bytes:
        """See Access."""
        return self._other.pack(keys, values, timestamps_ms)

    def write(self, records: pa.RecordBatch) -> bytes:
        """See Access."""
        return self._other.write(records)

    def unpack(self, data: bytes) -> Iterator[Change]:
        """See Access."""
        return self._other.unpack(data)

    def read(self, stream: str, partition: int, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See Access. One range after the other: an iterator that was left ends with the next read."""
        hub = self._hubs.of(stream)
        for batch in hub.namespace.ranges.read(hub.topic, partition, start, end):
            yield int(batch.column(3)[0].as_py()), batch

    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[Change]:
        """See Access: in the other system."""
        return self._other.changes(stream, partition, start, end, copied_ms=copied_ms)

    def now_ms(self) -> int:
        """See Access."""
        return self._other.now_ms()

    def close(self) -> None:
        """See Access."""
        self._hubs.close()
        self._other.close()
