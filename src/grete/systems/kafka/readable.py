"""A transactional id whose commits are acknowledged when their records can be read.

Brokers do not always end what they say is committed (see `grete.keyed_log.kafka_writer`), and a topic with an open
transaction stands still for all its readers. Of 6 runs that killed the broker right after "committed", 3 stood so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from grete.clock import Clock
from grete.kafka.client import KafkaConnection, describe, is_final, reason_of
from grete.kafka.producer import NotWritten, OutcomeUnknown, TransactionalProducer, not_written

Partition = tuple[str, int]


class ReadableProducer(TransactionalProducer):
    """See the head of the module. Used by one thread.

    Whoever produces gives `_take` as the callback of delivery, of the last record of each partition at least.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        make: Callable[[], Producer],
        clock: Clock,
        transaction_timeout_s: float,
    ) -> None:
        super().__init__(make, clock)
        self._connection = connection
        self._patience_s = 2 * transaction_timeout_s
        self._error: KafkaError | None = None
        self._ends: dict[Partition, int] = {}

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

    def commit(self, deadline_s: float) -> None:
        """Make the transaction's records visible, and wait until they are.

        Raises:
            NotWritten: they never will be.
            OutcomeUnknown: they may be; also when they are committed and cannot be read for long.
        """
        super().commit(deadline_s)
        wanted = {TopicPartition(*where): end for where, end in self._ends.items()}
        until_s, pause_s, never = self._clock.monotonic_s() + self._patience_s, 0.001, threading.Event()
        while True:
            try:
                found = self._connection.ends(list(wanted), is_stable=True)
                if all(found[where] >= end for where, end in wanted.items()):
                    return
                reason = "a transaction stays open"
            except KafkaException as error:
                reason = describe(reason_of(error))
            if self._clock.monotonic_s() >= until_s:
                self.give_up()
                raise OutcomeUnknown(f"committed, and cannot be read: {reason}")
            self._clock.wait(never, pause_s)
            pause_s = min(2 * pause_s, 0.05)
