"""Appending to topics by hand: the command line and tests. Each call is a transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from grete.clock import Clock
from grete.errors import InDoubt, LogError, StreamError
from grete.kafka.client import KafkaConnection
from grete.kafka.producer import NotWritten, OutcomeUnknown, ReadableProducer, transaction_producer
from grete.systems.base import Message, partition_for
from grete.systems.partitioner import Partitioner

_TIMEOUT_S = 60.0


class Appender(ReadableProducer):
    """Used by one thread at a time."""

    def __init__(self, connection: KafkaConnection, clock: Clock, transaction_timeout_s: float) -> None:
        self._id = f"grete-tool-{uuid.uuid4().hex}"
        super().__init__(
            connection,
            lambda: transaction_producer(connection, self._id, transaction_timeout_s),
            clock,
            transaction_timeout_s,
        )

    def append(
        self, stream: str, partitions: int, messages: Sequence[Message], partition_of: Partitioner
    ) -> None:
        """Append all or none, durable and to be read on return.

        Raises:
            StreamError: a partition that is not there, or the brokers refuse; nothing was written.
            InDoubt: the answer to the commit was lost, or a transaction in the way stays open.
        """
        deadline_s = self._clock.monotonic_s() + _TIMEOUT_S
        placed = [(message, partition_for(stream, message, partitions, partition_of)) for message in messages]
        try:
            if not self.is_open:
                self.open(deadline_s)
            try:
                self._send(stream, placed, deadline_s)
            except BaseException:
                self.abort(deadline_s)
                raise
            self.commit(deadline_s)
            self.confirm()
        except (NotWritten, LogError) as error:
            raise StreamError(f"nothing was appended to {stream}: {error}") from error
        except OutcomeUnknown as error:
            raise InDoubt(self._id, f"appending to {stream}: {error}", may_pass=True) from error

    def _send(self, stream: str, placed: Sequence[tuple[Message, int]], deadline_s: float) -> None:
        self.begin()
        for message, partition in placed:
            key, value, time_ms = message.key, message.value, message.timestamp_ms
            self.produce(stream, partition, key, value, time_ms=time_ms, headers=message.headers)
        self.settle(deadline_s)
