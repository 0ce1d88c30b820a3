"""Kafka as a system: topics are streams, and a container's outputs, changelogs and checkpoints are one transaction.

Offsets are the brokers', so there are gaps: markers, aborted and compacted records. Everything is read as committed,
and `upcoming` is the end of what no open transaction holds back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from grete.api import Serde
from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import (
    LogCorrupted,
    LogError,
    OffsetOutOfRange,
    StreamError,
    StreamNotFound,
    StreamRecreated,
)
from grete.kafka.client import KafkaConnection
from grete.kafka.errors import stream_errors
from grete.kafka.log_clients import KafkaClients
from grete.kafka.outcome import NotWritten
from grete.kafka.ranges import RangeReader
from grete.kafka.settings import KafkaLogSettings, checkpoint_log_settings
from grete.kafka.topics import RememberedTopics, Topics
from grete.keyed_log.base import Fence, Record
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.keyed_log.kafka_reader import LogReader
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import StreamSpec, check_partitions
from grete.systems.admin import PartitionOffsets
from grete.systems.base import Change, Message, System, SystemContext
from grete.systems.commit_group import CommitGroup
from grete.systems.kafka import SYSTEM
from grete.systems.kafka.append import Appender
from grete.systems.kafka.commits import KafkaCommits
from grete.systems.kafka.fence import FenceReader
from grete.systems.kafka.group import FenceWatch, KafkaGroupOffsets
from grete.systems.kafka.stream_settings import KafkaStreamSettings
from grete.systems.kafka.transaction import OVERHEAD_BYTES, GroupTransactions
from grete.systems.partitioner import Partitioner, kafka_partitioner

if TYPE_CHECKING:
    from grete.arrow import pa
    from grete.systems.kafka.inputs import KafkaInputs


def open_kafka_system(context: SystemContext) -> KafkaSystem:
    """The brokers that `systems.<name>.producer.bootstrap.servers` names.

    Raises:
        ConfigError: no brokers, or settings that only Java can use.
        LoginRefused: the brokers do not let us in.
        LogError: no broker answers.
        MissingExtra: confluent-kafka is not installed.
    """
    return KafkaSystem(context.settings, context.name, context.clock)


class _CheckpointLogs:
    """Those that were opened, by their names.

    No part of the system: its commits open logs too, and with a reference from them to the system a closed one kept
    its clients until the next full collection, each with threads that look for their brokers.
    """

    def __init__(self, settings: KafkaLogSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: dict[str, KafkaKeyedLog] = {}

    def get(self, name: str) -> KafkaKeyedLog:
        """One object for each name."""
        with self._lock:
            if name not in self._opened:
                self._opened[name] = KafkaKeyedLog(name, self._settings, self._clock)
            return self._opened[name]

    def close(self) -> None:
        """Close all."""
        with self._lock:
            for log in self._opened.values():
                log.close()


class KafkaSystem(System):
    """The topics of a Kafka cluster. Safe to use from several threads, and by many processes at once."""

    capabilities = SYSTEM.capabilities

    def __init__(self, settings: Settings, name: str, clock: Clock) -> None:
        self.name = name
        self._settings = settings
        self._clock = clock
        self._log_settings = checkpoint_log_settings(settings, name)
        self._streams = KafkaStreamSettings(settings, name)
        self._transaction_timeout_s = settings.task.transaction_timeout_s
        self._connection = KafkaConnection.of(self._log_settings, clock)
        self._connection.await_login(f"opening system {name!r}")
        self._topics = Topics(self._connection, name, clock)
        self._remembered = RememberedTopics(self._connection, name, clock)
        self._logs = _CheckpointLogs(self._log_settings, clock)
        self._commits = KafkaCommits(
            self._connection, self._topics, self._logs.get, self._log_settings, settings.task, clock
        )
        self._lock = threading.RLock()
        self._log_readers: dict[str, LogReader] = {}
        self._ranges = RangeReader(self._connection, clock)
        self._appender: Appender | None = None
        self._uids: dict[str, str] = {}

    def checkpoint_log(self, name: str) -> KafkaKeyedLog:
        """See System. One object for each name, closed with the system."""
        return self._logs.get(name)

    # --- SystemAdmin ---

    def partition_count(self, stream: str) -> int:
        """See SystemAdmin."""
        return self._topics.get(stream).partitions

    def stream_uid(self, stream: str) -> str:
        """See System: the topic's id."""
        return self._topics.get(stream).id

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """See SystemAdmin. `newest` is the offset before the upcoming one, as in Samza, though it may be a gap.

        Raises:
            StreamRecreated: the topic was deleted and recreated since the first call.
            StreamError: no answer.
        """
        found = self._topics.get(stream)
        self._check_same(stream, found.id)
        with self._asking(stream):
            held = self._connection.held(stream, range(found.partitions))
        return {partition: PartitionOffsets.held(*offsets) for partition, offsets in held.items()}

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        """See SystemAdmin. A partition without a leader is unreachable."""
        found = self._topics.get(stream)
        self._check_same(stream, found.id)
        led = [partition for partition in range(found.partitions) if partition not in found.leaderless]
        with self._asking(stream):
            held = self._connection.reachable(stream, led)
        return {
            partition: PartitionOffsets.held(*held[partition]) if partition in held else None
            for partition in range(found.partitions)
        }

    def _check_same(self, stream: str, uid: str) -> None:
        with self._lock:
            known = self._uids.setdefault(stream, uid)
        if known != uid:
            raise StreamRecreated(
                f"topic {stream} of system {self.name!r} was deleted and recreated (id {known}, now {uid}): "
                f"offsets that were read belong to the old one. Restart the job; it will explain how to resume"
            )

    def _asking(self, stream: str) -> AbstractContextManager[None]:
        return stream_errors(f"reading offsets of {stream} in system {self.name!r}")

    def offset_at(self, ssp: SystemStreamPartition, timestamp_ms: int) -> str:
        """See SystemAdmin. The broker's index answers."""
        if ssp.partition >= self.partition_count(ssp.stream):
            raise StreamNotFound(f"{ssp.system_stream} has no partition {ssp.partition}")
        with self._asking(ssp.stream):
            return str(self._connection.offset_at(ssp.stream, ssp.partition, timestamp_ms))

    def create_stream(self, spec: StreamSpec) -> None:
        """See SystemAdmin."""
        if self._is_created(spec):
            return
        found = self.partition_count(spec.stream)
        if found != spec.partitions:
            raise StreamError(
                f"stream {spec.stream!r} exists with {found} partitions; asked for {spec.partitions}"
            )
        self._check_policy(spec)

    def ensure_stream(self, spec: StreamSpec) -> None:
        """See System."""
        if self._is_created(spec):
            return
        self._check_policy(spec)
        if self.partition_count(spec.stream) < spec.partitions:
            self._topics.grow(spec.stream, spec.partitions)

    def _is_created(self, spec: StreamSpec) -> bool:
        """Create the stream when it is not there; False when it was, also in the end."""
        is_missing = self._topics.find(spec.stream) is None
        return is_missing and self._topics.create(spec.stream, spec.partitions, self._streams.of(spec))

    def _check_policy(self, spec: StreamSpec) -> None:
        """A changelog whose records go by age loses state that was not changed for a week."""
        if not spec.compacted:
            return
        problem = self._streams.changelog_problem(spec.stream, self._topics.config(spec.stream))
        if problem is not None:
            raise StreamError(f"stream {spec.stream!r} {problem.says}; {problem.way_out}")

    def add_partitions(self, stream: str, partitions: int) -> None:
        """See SystemAdmin."""
        check_partitions(stream, partitions)
        found = self.partition_count(stream)
        if partitions < found:
            raise StreamError(
                f"stream {stream!r} has {found} partitions and cannot have {partitions}: Kafka takes none away. "
                f"Create another stream with {partitions} partitions and copy the records"
            )
        if partitions > found:
            self._topics.grow(stream, partitions)

    def delete_stream(self, stream: str) -> None:
        """See SystemAdmin."""
        self._topics.delete(stream)

    def streams(self) -> Sequence[str]:
        """See SystemAdmin."""
        return self._topics.names()

    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See System.

        Raises:
            OffsetOutOfRange: `start` is not in the partition; names what is lost.
        """
        from grete.systems.records import batches

        until = int(self.offsets(stream)[partition].upcoming) if end is None else end
        with self._lock:
            yield from batches(self._ranges.read(stream, partition, start, until))

    def inputs(self, clock: Clock) -> KafkaInputs:
        """See System."""
        from grete.systems.kafka.inputs import KafkaInputs

        return KafkaInputs(self._connection, self.reachable_offsets, clock)

    def changes(
        self,
        stream: str,
        partition: int,
        start: int,
        end: int,
        *,
        copied_ms: int = 0,
        has_times: bool = False,
    ) -> Iterator[Change]:
        """See System.

        A tombstone stays for `delete.retention.ms` after its record was compacted. A copy that is older than half of
        that starts again: it may have missed one, and clocks differ.
        """
        from grete.systems.records import changes_of

        if start > 0:
            kept_ms = int(self._remembered.config(stream).get("delete.retention.ms", "0"))
            if self._clock.wall_ms() - copied_ms > kept_ms / 2:
                raise OffsetOutOfRange(
                    f"{stream} partition {partition}: a copy as of offset {start} is older than half of "
                    f"delete.retention.ms, so deletions may be missing between it and {end}"
                )
        oldest = self._ranges.range_of((stream, partition))[0] if start == 0 else start
        for _, batch in self.read(stream, partition, oldest, end):
            yield from changes_of(batch, has_times=has_times)

    def partitioner(self, stream: SystemStream, key_serde: Serde) -> Partitioner:
        """See System: Samza's or Kafka's."""
        return kafka_partitioner(self._settings, stream, key_serde)

    def largest_record(self, stream: str) -> int:
        """See System."""
        return self._remembered.largest(stream) - OVERHEAD_BYTES

    def is_compacted(self, stream: str) -> bool:
        """See System."""
        return "compact" in self._topics.config(stream).get("cleanup.policy", "")

    def append(self, stream: str, messages: Iterable[Message]) -> int:
        """See System. Keys go where the partitioner of an output of this name puts them."""
        batch = list(messages)
        partitioner = kafka_partitioner(self._settings, SystemStream(self.name, stream))
        partitions = self.partition_count(stream)
        with self._lock:
            if self._appender is None:
                self._appender = Appender(self._connection, self._clock, self._transaction_timeout_s)
            self._appender.append(stream, partitions, batch, partitioner)
        return len(batch)

    def intact_from(self, stream: str, partition: int) -> int:
        """See System. The cleaner leaves alone what is younger than `min.compaction.lag.ms`, and what it shadows."""
        lag_ms = int(self._topics.config(stream).get("min.compaction.lag.ms", "0"))
        ssp = SystemStreamPartition(self.name, stream, partition)
        return int(self.offset_at(ssp, self._clock.wall_ms() - lag_ms))

    def group_offsets(self, group: str, fence: Fence | None) -> KafkaGroupOffsets:
        """See System. The fence is looked at before each write."""
        watch = None
        if fence is not None:
            watch = FenceWatch(FenceReader(fence.scope, self._log_settings, self._clock), fence.epoch)
        return KafkaGroupOffsets(self._connection, self.name, group, self._clock, watch)

    def close(self) -> None:
        """See SystemAdmin."""
        self._logs.close()
        with self._lock:
            for log_reader in self._log_readers.values():
                log_reader.close()
            self._ranges.close()
        self._commits.close()
        self._connection.close()

    def forget(self) -> None:
        """See System."""
        with self._lock:
            self._remembered = RememberedTopics(self._connection, self.name, self._clock)
            self._uids.clear()

    # --- TransactionalStore ---

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """See TransactionalStore. Afterwards no executor of a lower epoch commits, wherever it runs."""
        self._commits.raise_fence(fences)

    def begin_epoch(self, fence: Fence) -> Fence:
        """See TransactionalStore."""
        return self._commits.begin_epoch(fence)

    def keep_fences(self, fences: Sequence[Fence]) -> None:
        """See System. Brokers forget an epoch that is not written for a week; it is written every hour."""
        self._commits.keep_fences(fences)

    def transactions(self, fences: Sequence[Fence], slot: int, streams: Sequence[str]) -> GroupTransactions:
        """See System."""
        return self._commits.transactions(
            fences,
            str(slot),
            self._remembered,
            lambda: [
                (stream, p) for stream in streams for p in range(self._remembered.get(stream).partitions)
            ],
        )

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """See TransactionalStore. The first fence guards the transaction; others are checked just before it.

        The end of a partition is the offset after its last record; the transaction's marker follows.
        """
        return self._commits.commit(group)

    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        """See System."""
        if log not in self._log_readers:
            clients = KafkaClients(log, self._log_settings, self._clock)
            self._log_readers[log] = LogReader(clients, self._clock)
        reader = self._log_readers[log]
        try:
            yield from reader.records(after, reader.settled_end() - 1)
        except LogCorrupted:
            raise
        except LogError as error:
            raise NotWritten(str(error)) from error
