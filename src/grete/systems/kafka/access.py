"""Kafka as an executor uses it: ranges, changelogs, and the transactions that commit what was made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import LogCorrupted, LogError, OffsetOutOfRange
from grete.kafka.client import KafkaClients, KafkaConnection
from grete.kafka.outcome import NotWritten
from grete.kafka.settings import checkpoint_log_settings
from grete.keyed_log.base import Fence, Record
from grete.keyed_log.kafka_reader import LogReader
from grete.model.ids import SystemStream
from grete.systems.access import Change
from grete.systems.base import SystemContext
from grete.systems.kafka.fence import FenceReader, transactional_id
from grete.systems.kafka.ranges import RangeReader
from grete.systems.kafka.topics import Topics
from grete.systems.kafka.transaction import OVERHEAD_BYTES, GroupTransactions
from grete.systems.partitioner import Partitioner, kafka_partitioner
from grete.systems.records import pack, unpack_changes, write


def open_kafka_access(context: SystemContext) -> KafkaAccess:
    """The brokers of a configuration.

    Raises:
        ConfigError: no brokers, or settings that only Java can use.
        LoginRefused: the brokers do not let us in.
        LogError: no broker answers.
        MissingExtra: confluent-kafka is not installed.
    """
    return KafkaAccess(context.config, context.name, context.clock)


@dataclass(frozen=True, slots=True)
class _Facts:
    """See TopicFacts."""

    largest: Callable[[str], int]
    partitions: Callable[[], Sequence[tuple[str, int]]]


class KafkaAccess:
    """See Access."""

    def __init__(self, config: Mapping[str, str], name: str, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._settings = checkpoint_log_settings(config, name)
        self._transaction_timeout_s = Settings.of(config).task.transaction_timeout_s
        self._connection = KafkaConnection(
            self._settings.client,
            self._settings.timeout_s,
            clock,
            self._settings.origin,
            self._settings.tuning,
        )
        self._connection.await_login(f"opening system {name!r}")
        self._topics = Topics(self._connection, name, clock)
        self._ranges = RangeReader(self._connection, clock)
        self._counts: dict[str, int] = {}
        self._configs: dict[str, Mapping[str, str]] = {}
        self._fences: dict[str, FenceReader] = {}
        self._logs: dict[str, LogReader] = {}

    def partition_count(self, stream: str) -> int:
        """See Access."""
        if stream not in self._counts:
            self._counts[stream] = self._topics.get(stream).partitions
        return self._counts[stream]

    def partitioner(self, stream: SystemStream) -> Partitioner:
        """See Access: Samza's or Kafka's."""
        return kafka_partitioner(self._config, stream)

    def largest_record(self, stream: str) -> int:
        """See Access."""
        return self._limit(stream) - OVERHEAD_BYTES

    def _limit(self, stream: str) -> int:
        return int(self._topic_config(stream)["max.message.bytes"])

    def _partitions_of(self, streams: Sequence[str]) -> list[tuple[str, int]]:
        return [
            (stream, partition) for stream in streams for partition in range(self.partition_count(stream))
        ]

    def _topic_config(self, stream: str) -> Mapping[str, str]:
        if stream not in self._configs:
            self._configs[stream] = self._topics.config(stream)
        return self._configs[stream]

    def pack(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> bytes:
        """See Access: as the embedded system does."""
        return pack(keys, values, timestamps_ms)

    def write(self, records: pa.RecordBatch) -> bytes:
        """See Access."""
        return write(records)

    def unpack(self, data: bytes) -> Iterator[Change]:
        """See Access."""
        return unpack_changes(data)

    def read(self, stream: str, partition: int, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See Access. One range after the other: an iterator that was left ends with the next read."""
        for batch in self._ranges.read(stream, partition, start, end):
            yield int(batch.column(3)[0].as_py()), batch

    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[Change]:
        """See Access.

        A tombstone stays for `delete.retention.ms` after its record was compacted. A copy that is older than half of
        that starts again: it may have missed one, and clocks differ.
        """
        if start > 0:
            kept_ms = int(self._topic_config(stream).get("delete.retention.ms", "0"))
            if self._clock.wall_ms() - copied_ms > kept_ms / 2:
                raise OffsetOutOfRange(
                    f"{stream} partition {partition}: a copy as of offset {start} is older than half of "
                    f"delete.retention.ms, so deletions may be missing between it and {end}"
                )
        oldest = self._ranges.range_of((stream, partition))[0] if start == 0 else start
        for batch in self._ranges.read(stream, partition, oldest, end):
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def now_ms(self) -> int:
        """See Access."""
        return self._clock.wall_ms()

    def group(self, fence: Fence, slot: int, streams: Sequence[str]) -> GroupTransactions:
        """See GroupAccess."""
        if fence.scope not in self._fences:
            self._fences[fence.scope] = FenceReader(fence.scope, self._settings, self._clock)
        return GroupTransactions(
            self._connection,
            transactional_id(fence.scope, str(slot)),
            fence,
            self._fences[fence.scope],
            _Facts(self._limit, lambda: self._partitions_of(streams)),
            self._clock,
            self._transaction_timeout_s,
        )

    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        """See GroupAccess."""
        if log not in self._logs:
            self._logs[log] = LogReader(KafkaClients(log, self._settings, self._clock), self._clock)
        reader = self._logs[log]
        try:
            yield from reader.records(after, reader.settled_end() - 1)
        except LogCorrupted:
            raise
        except LogError as error:
            raise NotWritten(str(error)) from error

    def close(self) -> None:
        """See Access."""
        self._ranges.close()
        for log in self._logs.values():
            log.close()
        for reader in self._fences.values():
            reader.close()
