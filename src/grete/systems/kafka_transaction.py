"""A transaction over outputs, changelogs and checkpoints, through one transactional id of a container's scope.

The order is the caller's: `begin`, `send` what belongs to streams, `settle` to learn where it stands, `send_entries`
for the checkpoints that name these positions, `commit`. An error before `commit` aborts; an id that was refused is
opened again by the caller, who then looks whether somebody else has done the work.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from grete.clock import Clock
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka_client import KafkaConnection, describe, is_final, reason_of
from grete.keyed_log.kafka_producer import NotWritten, OutcomeUnknown, TransactionalProducer, not_written
from grete.systems.group import RecordTooLarge
from grete.systems.kafka_fence import FenceReader

OVERHEAD_BYTES = 128
"""What a record's batch takes beside key and value, and a little."""
_BATCH_BYTES = 512 * 1024
_LARGEST_MESSAGE = 1_000_000_000
_NOTHING = b"grete-nothing"

Partition = tuple[str, int]


def transaction_producer(
    connection: KafkaConnection, id_: str, transaction_timeout_s: float, batch_bytes: int = _BATCH_BYTES
) -> Producer:
    """A producer of a transactional id, for many records at once."""
    return connection.new_producer(
        f"making the producer {id_}",
        id_,
        {
            "transaction.timeout.ms": round(transaction_timeout_s * 1000),
            "linger.ms": 20,
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": _LARGEST_MESSAGE,  # the topic decides
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_147_483_647,
            "enable.sparse.connections": False,  # else opening waits half a second, or 50 ms, for a connection
        },
    )


def await_readable(
    connection: KafkaConnection, ends: Mapping[Partition, int], clock: Clock, patience_s: float
) -> None:
    """Wait until readers of what is committed get everything before these ends.

    Raises:
        OutcomeUnknown: they do not for so long, though the brokers have said that it is committed.
    """
    wanted = {TopicPartition(*where): end for where, end in ends.items()}
    until_s, pause_s, never = clock.monotonic_s() + patience_s, 0.001, threading.Event()
    while True:
        try:
            found = connection.ends(list(wanted), is_stable=True)
            if all(found[where] >= end for where, end in wanted.items()):
                return
            reason = "a transaction stays open"
        except KafkaException as error:
            reason = describe(reason_of(error))
        if clock.monotonic_s() >= until_s:
            raise OutcomeUnknown(f"committed, and cannot be read: {reason}")
        clock.wait(never, pause_s)
        pause_s = min(2 * pause_s, 0.05)


class TopicFacts(Protocol):
    """What a slot's transactions need to know of topics."""

    def largest(self, stream: str) -> int:
        """How many bytes a record may have."""

    def partitions(self) -> Sequence[Partition]:
        """Every partition that transactions of the scope may write to."""


class GroupTransactions(TransactionalProducer):
    """The transactions of one slot. Used by one thread.

    A commit is acknowledged when its records can be read, and an id that was opened aborts what may be left of it:
    for the reason see `grete.keyed_log.kafka_writer`.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        id_: str,
        fence: Fence,
        reader: FenceReader,
        topics: TopicFacts,
        clock: Clock,
        transaction_timeout_s: float,
    ) -> None:
        super().__init__(
            lambda: transaction_producer(connection, id_, transaction_timeout_s, self._batch_bytes), clock
        )
        self._batch_bytes = _BATCH_BYTES
        self._fence = fence
        self._reader = reader
        self._topics = topics
        self._connection = connection
        self._patience_s = 2 * transaction_timeout_s
        self._error: KafkaError | None = None
        self._ends: dict[Partition, int] = {}

    def open(self, deadline_s: float) -> None:
        """Take the id over and see that nobody of a higher epoch has; our successor loses a transaction, no more.

        Raises:
            Fenced: a higher epoch is stored.
            NotWritten: no answer in time.
        """
        self._reader.check(self._fence.epoch)  # so that a successor who is at work is mostly left in peace
        super().open(deadline_s)
        try:
            self._reader.check(self._fence.epoch)
            self._end_what_is_left(deadline_s)
        except BaseException:
            self.drop()
            raise

    def _end_what_is_left(self, deadline_s: float) -> None:
        """Abort a transaction over every partition where one is open, by whomever: of others it ends nothing."""
        partitions = [TopicPartition(*where) for where in self._topics.partitions()]
        try:
            stable = self._connection.ends(partitions, is_stable=True)
            ends = self._connection.ends(partitions, is_stable=False)
            stuck = [where for where in partitions if stable[where] < ends[where]]
            if not stuck:
                return
            self.producer.begin_transaction()
            for where in stuck:
                self.producer.produce(where.topic, b"", _NOTHING, where.partition)
        except KafkaException as error:
            raise not_written(error) from error
        self.flush(deadline_s)
        self.abort(deadline_s)
        if not self.is_open:
            raise NotWritten("a transaction could not be aborted")

    def commit(self, deadline_s: float) -> None:
        """Make the transaction's records visible, and wait until they are.

        Raises:
            NotWritten: they never will be.
            OutcomeUnknown: they may be; also when they are committed and cannot be read for long.
        """
        super().commit(deadline_s)
        try:
            await_readable(self._connection, self._ends, self._clock, self._patience_s)
        except OutcomeUnknown:
            self.give_up()
            raise

    def fits(self, streams: Sequence[str]) -> None:
        """Let batches be as small as the topics want; an open producer with larger ones is given up."""
        wanted = min([_BATCH_BYTES, *(self._topics.largest(stream) for stream in streams)])
        if wanted < self._batch_bytes:
            self._batch_bytes = wanted
            self.drop()

    def check_sizes(self, stream: str, partition: int, records: pa.RecordBatch) -> None:
        """Whether the topic takes each of them.

        Raises:
            RecordTooLarge: naming the first that it does not.
        """
        limit = self._topics.largest(stream) - OVERHEAD_BYTES
        sizes = pc.add(
            pc.coalesce(pc.binary_length(records.column(0)), pa.scalar(0, pa.int32())),
            pc.coalesce(pc.binary_length(records.column(1)), pa.scalar(0, pa.int32())),
        )
        largest = pc.max(sizes).as_py()
        if largest is not None and largest > limit:
            raise RecordTooLarge(
                f"a record of {largest} bytes for {stream} partition {partition} is larger than the topic takes: its "
                f"max.message.bytes leaves {limit} for key and value. Make it smaller, or raise max.message.bytes of "
                f"topic {stream} (and of its readers)",
                pc.index(sizes, largest).as_py(),
            )

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            NotWritten: the id is not ours any more.
        """
        self._error, self._ends = None, {}
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise not_written(error) from error

    def send(self, stream: str, partition: int, records: pa.RecordBatch) -> None:
        """Hand over records of one partition, in order. 2 µs each.

        Raises:
            NotWritten: refused; the transaction is to be aborted.
        """
        produce, last = self.producer.produce, records.num_rows - 1
        keys, values, times = (records.column(i).to_pylist() for i in range(3))
        try:
            for row, (key, value, time_ms) in enumerate(zip(keys, values, times, strict=True)):
                if row < last:
                    produce(stream, value, key, partition, None, time_ms)
                else:
                    produce(stream, value, key, partition, self._take, time_ms)
        except KafkaException as error:
            raise not_written(error) from error

    def _take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = self._error or error
            return
        where = (str(message.topic()), int(message.partition() or 0))
        self._ends[where] = max((message.offset() or 0) + 1, self._ends.get(where, 0))

    def settle(self, deadline_s: float) -> Mapping[Partition, int]:
        """Wait for the brokers to have everything; the offset after the last record of each partition.

        Raises:
            NotWritten: refused, or not in time.
        """
        self.flush(deadline_s)
        if self._error is not None:
            raise NotWritten(describe(self._error), is_final=is_final(self._error))
        return self._ends

    def send_entries(self, topic: str, entries: Sequence[Entry], now_ms: int) -> None:
        """Hand over records of a keyed log, under the fence. They may stand apart, so each is an append of its own.

        Raises:
            NotWritten: refused.
        """
        origin = kafka_header.Origin(self._fence.epoch, uuid.uuid4().hex, self._fence.scope)
        header = kafka_header.with_remaining(0, kafka_header.encode(origin))
        try:
            for entry in entries:
                self.producer.produce(
                    topic,
                    key=entry.key,
                    value=entry.value,
                    partition=0,
                    timestamp=now_ms,
                    headers=[(kafka_header.NAME, header)],
                    on_delivery=self._take,
                )
        except KafkaException as error:
            raise not_written(error) from error
