"""Appending to topics by hand: the command line and tests. Each call is a transaction.

It returns when its records can be read. Of 3 runs that killed the broker right after "committed", 1 had a broker that
forgot to end the transaction (see `grete.keyed_log.kafka_writer`): the topic then stood still for all its readers.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Delivered

from grete.clock import Clock
from grete.errors import InDoubt, LogError, StreamError
from grete.keyed_log.kafka_client import KafkaConnection, describe
from grete.keyed_log.kafka_producer import NotWritten, OutcomeUnknown, TransactionalProducer, not_written
from grete.systems.base import Message
from grete.systems.kafka_transaction import Partition, await_readable, transaction_producer
from grete.systems.partitioner import Partitioner

_TIMEOUT_S = 60.0


class Appender(TransactionalProducer):
    """Used by one thread at a time."""

    def __init__(self, connection: KafkaConnection, clock: Clock, transaction_timeout_s: float) -> None:
        self._id = f"grete-tool-{uuid.uuid4().hex}"
        self._connection = connection
        self._patience_s = 2 * transaction_timeout_s
        self._error: KafkaError | None = None
        self._ends: dict[Partition, int] = {}
        super().__init__(lambda: transaction_producer(connection, self._id, transaction_timeout_s), clock)

    def append(
        self, stream: str, partitions: int, messages: Sequence[Message], partition_of: Partitioner
    ) -> None:
        """Append all or none, durable and to be read on return.

        Raises:
            StreamError: a partition that is not there, or the brokers refuse; nothing was written.
            InDoubt: the answer to the commit was lost, or a transaction in the way stays open.
        """
        deadline_s = self._clock.monotonic_s() + _TIMEOUT_S
        placed = [(message, _partition(stream, message, partitions, partition_of)) for message in messages]
        try:
            if not self.is_open:
                self.open(deadline_s)
            try:
                self._send(stream, placed, deadline_s)
            except BaseException:
                self.abort(deadline_s)
                raise
            self.commit(deadline_s)
            await_readable(self._connection, self._ends, self._clock, self._patience_s)
        except (NotWritten, LogError) as error:
            raise StreamError(f"nothing was appended to {stream}: {error}") from error
        except OutcomeUnknown as error:
            raise InDoubt(self._id, f"appending to {stream}: {error}", may_pass=True) from error

    def _send(self, stream: str, placed: Sequence[tuple[Message, int]], deadline_s: float) -> None:
        self._error, self._ends = None, {}
        try:
            self.producer.begin_transaction()
            for message, partition in placed:
                self.producer.produce(
                    stream,
                    message.value,
                    message.key,
                    partition,
                    on_delivery=self._take,
                    timestamp=message.timestamp_ms,
                )
        except KafkaException as error:
            raise not_written(error) from error
        self.flush(deadline_s)
        if self._error is not None:
            raise NotWritten(describe(self._error))

    def _take(self, error: KafkaError | None, message: Delivered) -> None:
        self._error = self._error or error
        if error is None:
            where = (str(message.topic()), int(message.partition() or 0))
            self._ends[where] = max((message.offset() or 0) + 1, self._ends.get(where, 0))


def _partition(stream: str, message: Message, partitions: int, partition_of: Partitioner) -> int:
    if message.partition is None:
        return 0 if message.key is None else partition_of(message.key, partitions)
    if not 0 <= message.partition < partitions:
        raise StreamError(f"{stream} has partitions 0 to {partitions - 1}, not {message.partition}")
    return message.partition
