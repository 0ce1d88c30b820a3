"""A transaction over outputs, changelogs and checkpoints, through one transactional id of a container's scope.

The order is the caller's: `begin`, `send` what belongs to streams, `settle` to learn where it stands, `send_entries`
for the checkpoints that name these positions, `commit`. An error before `commit` aborts; an id that was refused is
opened again by the caller, who then looks whether another process has done the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grete.clock import Clock
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.errors import describe, reason_of
from grete.kafka.library import KafkaException, Producer, TopicPartition
from grete.kafka.producer import BATCH_BYTES, ReadableProducer, transaction_producer
from grete.kafka.topics import Topics
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry, Fence
from grete.systems.kafka.fence import FenceReader
from grete.systems.transactions import RecordTooLarge

if TYPE_CHECKING:
    from grete.arrow import pa

OVERHEAD_BYTES = 128
"""Bytes that a record's batch takes beside key and value, and a little."""


@dataclass(frozen=True, slots=True)
class Resting:
    """The producer of an id that nobody uses, opened under these fences, and what it has not confirmed."""

    fences: tuple[Fence, ...]
    producer: Producer
    batch_bytes: int
    unconfirmed: Mapping[Partition, int]


class GroupTransactions(ReadableProducer):
    """The transactions of one slot. Used by one thread.

    `fences` are checked whenever the id is opened, each by its reader; records carry the first. `topics` say how many
    bytes a record may have; what an older process of the slot left open in `partitions` is ended when the id is
    opened. The producer of who is closed rests in `resting`, by its id.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        id_: str,
        fences: Mapping[Fence, FenceReader],
        topics: Topics,
        partitions: Callable[[], Sequence[Partition]],
        clock: Clock,
        transaction_timeout_s: float,
        resting: MutableMapping[str, Resting],
    ) -> None:
        super().__init__(
            connection,
            lambda: transaction_producer(connection, id_, transaction_timeout_s, self._batch_bytes),
            clock,
            transaction_timeout_s,
        )
        self._id = id_
        self._resting = resting
        self._batch_bytes = BATCH_BYTES
        self._transaction_timeout_s = transaction_timeout_s
        self._began_s = 0.0
        self.has_timed_out = False
        self._fences = dict(fences)
        self._fence = next(iter(self._fences))
        self._topics = topics
        self._limits: dict[str, int] = {}
        self._partitions = partitions

    def open(self, deadline_s: float) -> None:
        """Take the id over and check that no higher epoch is stored; a successor loses a transaction, no more.

        Raises:
            Fenced: a higher epoch is stored.
            NotWritten: no answer in time.
        """
        if self._go_on_with_one_at_rest():
            return
        self.check_fence()  # so that a successor who is at work is mostly left in peace
        super().open(deadline_s)
        try:
            self.check_fence()
            self.abort_dangling_transactions(self._connection, self._partitions(), deadline_s)
        except BaseException:
            self.drop()
            raise

    def _go_on_with_one_at_rest(self) -> bool:
        """Whether the id is still open here, under the same fences.

        Another process may have opened it since: then the next request is refused, and it is opened once more.
        """
        rested = self._resting.pop(self._id, None)
        if rested is None or rested.fences != tuple(self._fences):
            return False
        self.check_fence()
        self._producer, self._batch_bytes = rested.producer, rested.batch_bytes
        self._unconfirmed = dict(rested.unconfirmed)
        return True

    def close(self) -> None:
        """See Transactions. To make a producer, and to let it learn of its partitions, takes 50 ms."""
        self._resting.clear()  # at most one, of whose id is the last
        if self._producer is not None:
            fences = tuple(self._fences)
            self._resting[self._id] = Resting(
                fences, self._producer, self._batch_bytes, dict(self._unconfirmed)
            )
        self.drop()

    def begin(self) -> None:
        """See TransactionalProducer."""
        self._began_s = self._clock.monotonic_s()
        super().begin()

    def settle(self, deadline_s: float) -> Mapping[Partition, int]:
        """See TransactionalProducer. No longer than brokers keep the transaction open, and as long again."""
        return super().settle(min(deadline_s, self._began_s + 2 * self._transaction_timeout_s))

    def abort(self, deadline_s: float) -> None:
        """See TransactionalProducer."""
        has_timed_out = self._has_been_too_long()
        super().abort(deadline_s)
        self.has_timed_out = has_timed_out

    def give_up(self) -> None:
        """See TransactionalProducer."""
        super().give_up()
        self.has_timed_out = self._has_been_too_long()

    def _has_been_too_long(self) -> bool:
        return self._clock.monotonic_s() - self._began_s > self._transaction_timeout_s

    def drop(self) -> None:
        """See TransactionalProducer."""
        super().drop()
        self.has_timed_out = False

    def fits(self, streams: Sequence[str], *, again: bool = False) -> bool:
        """Let batches be as small as the topics want; an open producer with larger ones is given up."""
        before = dict(self._limits)
        self._limits |= {stream: self._topics.largest(stream, again=again) for stream in streams}
        wanted = min([BATCH_BYTES, *(self._limits[stream] for stream in streams)])
        if wanted < self._batch_bytes:
            self._batch_bytes = wanted
            self.drop()
        return self._limits != before

    def check_sizes(self, stream: str, partition: int, records: pa.RecordBatch) -> None:
        """Whether the topic takes each of them.

        Raises:
            RecordTooLarge: naming the first that it does not.
        """
        from grete.arrow import pa, pc  # a coordinator does without: a fifth of its imports
        from grete.systems.records import header_bytes, headers_of

        limit = self._topics.largest(stream) - OVERHEAD_BYTES
        sizes = pc.add(
            pc.coalesce(pc.binary_length(records.column(0)), pa.scalar(0, pa.int32())),
            pc.coalesce(pc.binary_length(records.column(1)), pa.scalar(0, pa.int32())),
        )
        if (headers := headers_of(records)) is not None:
            sizes = pc.add(sizes, pa.array(map(header_bytes, headers), pa.int32()))
        largest = pc.max(sizes).as_py()
        if largest is not None and largest > limit:
            raise RecordTooLarge(
                f"a record of {largest} bytes for {stream} partition {partition} is larger than the topic takes: its "
                f"max.message.bytes leaves {limit} for key and value. Make it smaller, or raise max.message.bytes of "
                f"topic {stream} (and of its readers)",
                pc.index(sizes, largest).as_py(),
            )

    def await_readable(self, timeout_s: float) -> str:
        """See Transactions."""
        try:
            asked = [TopicPartition(*where) for where in self._partitions()]
            ends = self._connection.ends(asked, is_stable=False)
        except KafkaException as error:
            return describe(reason_of(error))
        wanted = {(str(where.topic), int(where.partition)): offset for where, offset in ends.items()}
        return self._connection.await_stable(wanted, timeout_s)

    def check_fence(self) -> None:
        """See Transactions."""
        for fence, reader in self._fences.items():
            reader.check(fence.epoch)

    def send_batch(
        self,
        stream: str,
        partition: int,
        records: pa.RecordBatch,
        *,
        after: int | None = None,
        packed: bytes | None = None,
    ) -> None:
        """See Transactions. Markers leave gaps, so where a partition ends is not known before."""
        from grete.systems.records import headers_of

        keys, values, times = (records.column(i).to_pylist() for i in range(3))
        self.produce_columns(stream, partition, (keys, values, times), headers_of(records))

    def send_entries(self, topic: str, entries: Sequence[Entry], now_ms: int) -> None:
        """Hand over records of a keyed log, under the fence. They may stand apart, so each is an append of its own.

        Raises:
            NotWritten: refused.
        """
        header = kafka_header.of_one(self._fence.epoch, self._fence.scope)
        for entry in entries:
            self.produce(
                topic, 0, entry.key, entry.value, time_ms=now_ms, headers=[(kafka_header.NAME, header)]
            )
